// Every op whose schema says that it writes, seen where torch counts versions: the ADInplaceOrView key of its
// dispatcher. Each such op gets a kernel that notes the write and then calls what was there before. What was noted is
// kept here, by memory, and asked for by Python when a report needs it; Python is called back only for lines of the
// program that are new, and a few more times as they come again.
#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/extension.h>

#include <cstring>
#include <unordered_set>

#include "frames.h"
#include "nodes.h"

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

using namespace torchsan;

// What Python says of a site (`arrive`).
enum : int { NO_LOOK = 1, FOLLOWED = 2 };
// How many visits of a line that is followed are looked at.
constexpr uint64_t MOST_FOLLOWED = 512;

struct Record {
  int64_t before;
  int64_t version;
  int64_t start;
  int64_t end;
  uintptr_t layer;
  int32_t site;
  int32_t op;
  uint64_t thread;
  int64_t moment;
};

// Who writes: the innermost instruction that is not ours, and the nearest of the user's.
struct Spot {
  Instruction inner, user;
  bool operator==(const Spot& o) const { return inner == o.inner && user == o.user; }
};

struct SpotHash {
  size_t operator()(const Spot& s) const {
    size_t h = s.inner.hash() ^ (s.user.hash() * 0xC2B2AE3D27D4EB4Full);
    return h ^ (h >> 29);
  }
};

struct Site {
  int32_t number = 0;
  int flags = 0;
  uint64_t visits = 0;
};

// As it is kept: threads count their visits together.
struct KeptSite {
  int32_t number = 0;
  std::atomic<int> flags{0};
  std::atomic<uint64_t> visits{0};
};

// The last writes of one memory, in a ring once there are many.
struct Story {
  std::vector<Record> records;
  size_t next = 0;
  uint64_t stamp = 0;
  void add(const Record& record, size_t most) {
    if (records.size() < most) {
      records.push_back(record);
    } else {
      records[next] = record;
      next = (next + 1) % most;
    }
  }
};

// Memory of which `.data` was taken, and the tensor whose version should count its writes.
struct Exposed {
  c10::weak_intrusive_ptr<c10::TensorImpl> original;
  // While this is here, no other memory gets the address that this one is known by: the tensor may be given another.
  c10::weak_intrusive_ptr<c10::StorageImpl> memory;
  int32_t site;
  int64_t told_before = -1;
  int64_t told_start = 0;
  int64_t told_end = 0;
};

struct Silent {
  uintptr_t memory;
  Record record;
};

struct State {
  std::mutex lock;
  std::atomic<bool> recording{false};
  std::atomic<bool> guarded{false};
  std::atomic<bool> any_exposed{false};
  std::atomic<bool> new_ops{false};
  size_t most_memories = 20000;
  size_t most_writes = 64;
  size_t most_exposed = 2000;
  uint64_t stamp = 0;
  std::unordered_map<uintptr_t, Story> stories;
  std::unordered_map<Spot, KeptSite, SpotHash> sites;
  // Grows whenever stories are forgotten.
  uint64_t forgotten = 1;
  std::unordered_map<uintptr_t, Exposed> exposed;
  std::vector<Silent> silent;
  std::vector<std::string> ops;
  std::unordered_map<std::string, int32_t> op_numbers;
  // The thread that began to watch, and whether another has written since; moments put the writes of all in order.
  std::atomic<uint64_t> home{0};
  std::atomic<bool> threaded{false};
  std::atomic<int64_t> moment{1};
  PyObject* arrive = nullptr;
  PyObject* before = nullptr;
  PyObject* after = nullptr;
  PyObject* joined = nullptr;
};

State& state() {
  static State* s = new State();  // never destroyed: kernels may run while the interpreter ends
  return *s;
}

[[noreturn]] void throw_python() {
  python_error error;
  error.persist();
  throw error;
}

struct Located {
  Spot spot;
  KeptSite* known = nullptr;
  uintptr_t layer = 0;
  uint64_t thread = 0;
  bool any = false;
  bool step = false;
};

void look_at(Located& at, const Instruction& here, int flags, PyObject* first_local) {
  if (flags & STEP) at.step = true;
  if ((flags & FORWARD) && at.layer == 0 && first_local != nullptr) at.layer = reinterpret_cast<uintptr_t>(first_local);
  if (!at.any) {
    at.any = true;
    at.spot.inner = here;
  }
  if (flags & USER) at.spot.user = here;
}

uint64_t generation() { return codes().generation.load(std::memory_order_relaxed); }

void remember(const Instruction& here, KeptSite* site) {
  memo().writes[slot_of(here)] = Direct{here, generation(), site};
}

// The innermost frame that is not ours, and the nearest of the user's.
Located locate(bool hurry) {
  Located at;
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr) return at;
  at.thread = static_cast<uint64_t>(thread->thread_id);
#ifdef TORCHSAN_OWN_FRAMES
  for (_PyInterpreterFrame* frame = innermost(thread); frame != nullptr; frame = outer(frame)) {
    const Instruction here = instruction_of(frame);
    if (hurry && !at.any) {
      const Direct& known = memo().writes[slot_of(here)];
      if (known.instruction == here && known.generation == generation()) {
        at.any = true;
        at.known = static_cast<KeptSite*>(known.what);
        at.step = at.known == nullptr;
        return at;
      }
    }
    const int flags = flags_of(here.code);
    if (flags & OURS) continue;
    look_at(at, here, flags, (flags & FORWARD) ? frame->localsplus[0] : nullptr);
    // Optimizers write the most, and nothing is asked of these writes.
    if (at.step && at.spot.inner == here) remember(here, nullptr);
    if (at.spot.user.code != nullptr || at.step) break;
  }
#else
  pybind11::gil_scoped_acquire gil;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const int flags = flags_of(code);
    if (!(flags & OURS)) look_at(at, {code, PyFrame_GetLasti(frame)}, flags, nullptr);
    Py_DECREF(code);
    PyFrameObject* back = at.spot.user.code != nullptr || at.step ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
#endif
  return at;
}

Site ask_arrive(const Spot& spot) {
  pybind11::gil_scoped_acquire gil;
  Inside inside;
  Site site;
  PyObject* said = PyObject_CallFunctionObjArgs(state().arrive, nullptr);
  if (said == nullptr) throw_python();
  site.number = static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(said, 0)));
  site.flags = static_cast<int>(PyLong_AsLong(PyTuple_GetItem(said, 1)));
  Py_DECREF(said);
  return site;
}

// The site of a spot, with the number of visits before this one.
Site visit(const Located& at) {
  KeptSite* kept = at.known;
  if (kept == nullptr) {
    std::lock_guard<std::mutex> guard(state().lock);
    auto found = state().sites.find(at.spot);
    if (found != state().sites.end()) kept = &found->second;
  }
  if (kept == nullptr) {
    const Site fresh = ask_arrive(at.spot);
    std::lock_guard<std::mutex> guard(state().lock);
    kept = &state().sites[at.spot];
    kept->number = fresh.number;
    kept->flags = fresh.flags;
  }
  // A line of the user's own that writes directly: neither a library nor a layer in between.
  if (at.known == nullptr && at.layer == 0 && at.spot.user == at.spot.inner && at.spot.user.code != nullptr) {
    remember(at.spot.inner, kept);
  }
  return Site{kept->number, kept->flags, kept->visits.fetch_add(1, std::memory_order_relaxed)};
}

bool worth_a_look(uint64_t visits, int flags) {
  if (flags & NO_LOOK) return false;
  return visits < 4 || (visits & (visits - 1)) == 0 || ((flags & FOLLOWED) && visits < MOST_FOLLOWED);
}

uintptr_t memory_of(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

bool is_ordinary(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const DispatchKeySet keys = impl->key_set();
  // A nested tensor has no sizes, and would say so by an error; nor has one whose sizes are symbols.
  return impl->has_storage() && !tensor.is_nested() && !impl->has_symbolic_sizes_strides() &&
      !keys.has(DispatchKey::Python) && !keys.has(DispatchKey::Functionalize) &&
      !keys.has(DispatchKey::FuncTorchBatched) && !keys.has(DispatchKey::FuncTorchGradWrapper) &&
      impl->layout() == at::kStrided;
}

void bytes_of(const at::Tensor& tensor, int64_t& start, int64_t& end) {
  const int64_t size = static_cast<int64_t>(tensor.element_size());
  start = tensor.storage_offset() * size;
  end = start;
  if (tensor.numel() == 0) return;
  int64_t reach = 0;
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  for (size_t d = 0; d < sizes.size(); d++) reach += (sizes[d] - 1) * strides[d];
  end = start + (reach + 1) * size;
}

int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor.unsafeGetTensorImpl()->version_counter().current_version());
}

uint64_t hash_bytes(const uint8_t* data, int64_t size) {
  uint64_t lanes[4] = {1, 2, 3, 4};
  int64_t i = 0;
  for (; i + 32 <= size; i += 32) {
    uint64_t words[4];
    std::memcpy(words, data + i, 32);
    for (int k = 0; k < 4; k++) {
      lanes[k] = (lanes[k] ^ words[k]) * 0x9E3779B97F4A7C15ull;
      lanes[k] ^= lanes[k] >> 31;
    }
  }
  uint64_t h = lanes[0] ^ (lanes[1] * 3) ^ (lanes[2] * 5) ^ (lanes[3] * 7);
  for (; i < size; i++) h = (h ^ data[i]) * 0x100000001B3ull;
  return h;
}

bool hash_tensor(const at::Tensor& tensor, uint64_t& hash) {
  if (!tensor.device().is_cpu()) return false;
  int64_t start = 0, end = 0;
  bytes_of(tensor, start, end);
  const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  end = std::min<int64_t>(end, static_cast<int64_t>(storage.nbytes()));
  const auto* base = static_cast<const uint8_t*>(storage.data());
  if (base == nullptr || end <= start) return false;
  hash = hash_bytes(base + start, end - start);
  return true;
}

// One written tensor: what was known of it before the write.
struct Note {
  at::Tensor tensor;
  c10::intrusive_ptr<c10::TensorImpl> original;
  int64_t original_version = 0;
  uint64_t hash = 0;
  bool hashed = false;
  uintptr_t memory = 0;
};

// Who could have saved the tensor holds it, or another tensor on its memory. Besides those there are the program
// itself, its `.data`, our own reference, and for a leaf the node that collects its gradient.
bool may_be_saved(const at::Tensor& written, const c10::intrusive_ptr<c10::TensorImpl>& original) {
  if (written.unsafeGetTensorImpl()->unsafe_storage().use_count() > 2) return true;
  at::Tensor tensor = at::Tensor::wrap_tensor_impl(original);  // one more
  const uint32_t others = tensor.is_leaf() && tensor.requires_grad() ? 4 : 3;
  return original.use_count() > others;
}

void note_exposure(Note& note, int64_t before) {
  c10::intrusive_ptr<c10::TensorImpl> original;
  {
    std::lock_guard<std::mutex> guard(state().lock);
    auto found = state().exposed.find(memory_of(note.tensor));
    if (found == state().exposed.end()) return;
    Exposed& known = found->second;
    if (known.told_before == before) {
      int64_t start = 0, end = 0;
      bytes_of(note.tensor, start, end);
      if (known.told_start <= start && end <= known.told_end) return;  // told already, of the same moment
    }
    original = known.original.lock();
  }
  if (!original || original->is_inference()) return;
  if (original.get() == note.tensor.unsafeGetTensorImpl() || !may_be_saved(note.tensor, original)) return;
  note.original_version = static_cast<int64_t>(original->version_counter().current_version());
  note.original = std::move(original);
  note.hashed = hash_tensor(note.tensor, note.hash);
}

void tell_silent(const Note& note, const Record& record) {
  if (!note.original) return;
  if (static_cast<int64_t>(note.original->version_counter().current_version()) != note.original_version) return;
  uint64_t now = 0;
  if (note.hashed && hash_tensor(note.tensor, now) && now == note.hash) return;
  std::lock_guard<std::mutex> guard(state().lock);
  const uintptr_t memory = memory_of(note.tensor);
  auto found = state().exposed.find(memory);
  if (found != state().exposed.end()) {
    found->second.told_before = record.before;
    found->second.told_start = record.start;
    found->second.told_end = record.end;
  }
  if (state().silent.size() < 100000) state().silent.push_back({memory, record});
}

// The lock is held.
void forget_oldest() {
  State& s = state();
  std::vector<uint64_t> stamps;
  stamps.reserve(s.stories.size());
  for (auto& entry : s.stories) stamps.push_back(entry.second.stamp);
  auto middle = stamps.begin() + static_cast<std::ptrdiff_t>(stamps.size() / 2);
  std::nth_element(stamps.begin(), middle, stamps.end());
  const uint64_t limit = *middle;
  for (auto it = s.stories.begin(); it != s.stories.end();) {
    it = it->second.stamp < limit ? s.stories.erase(it) : std::next(it);
  }
  s.forgotten++;
}

void keep(uintptr_t memory, const Record& record) {
  State& s = state();
  Memo& mine = memo();
  std::lock_guard<std::mutex> guard(s.lock);
  if (mine.memory != memory || mine.stories != s.forgotten) {
    if (s.stories.size() >= s.most_memories) forget_oldest();
    mine.memory = memory;
    mine.story = &s.stories[memory];  // it stays where it is until it is forgotten
    mine.stories = s.forgotten;
  }
  Story& story = *static_cast<Story*>(mine.story);
  story.stamp = ++s.stamp;
  story.add(record, s.most_writes);
}

// What the look of Python before a write wants to see again after it.
struct Token {
  PyObject* held = nullptr;
  ~Token() {
    if (held != nullptr) {
      pybind11::gil_scoped_acquire gil;
      Py_DECREF(held);
    }
  }
};

// Arguments of an op for Python. A number that torch has wrapped into a tensor is a number again.
py::object shown_to_python(const at::Tensor& tensor) {
  if (!tensor.defined()) return py::none();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.device().is_cpu()) {
    // To read it is an op, which is none of the business of the program's own modes.
    c10::impl::ExcludeDispatchKeyGuard unseen(DispatchKeySet{DispatchKey::Python, DispatchKey::PythonTLSSnapshot});
    return py::reinterpret_steal<py::object>(torch::jit::toPyObject(c10::IValue(tensor.item())).release());
  }
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}
py::object shown_to_python(const at::Scalar& number) { return torch::jit::toPyObject(c10::IValue(number)); }
py::object shown_to_python(bool value) { return py::bool_(value); }
py::object shown_to_python(const c10::IValue& value) {
  return value.isTensor() ? shown_to_python(value.toTensor()) : torch::jit::toPyObject(value);
}

template <class Args>
PyObject* arguments_of(const Args& args) {
  try {
    return args().release().ptr();
  } catch (...) {
    PyErr_Clear();  // an argument that Python has no form for
    Py_RETURN_NONE;
  }
}

template <class Args>
void call_before(
    Token& token, int32_t op, const std::string& overload, const Site& site, const c10::SmallVector<Note, 2>& notes,
    const Args& args) {
  pybind11::gil_scoped_acquire gil;
  Inside inside;
  PyObject* tensors = PyTuple_New(static_cast<Py_ssize_t>(notes.size()));
  for (size_t i = 0; i < notes.size(); i++) {
    PyTuple_SET_ITEM(tensors, static_cast<Py_ssize_t>(i), THPVariable_Wrap(notes[i].tensor));
  }
  PyObject* said = PyObject_CallFunction(
      state().before, "siOKsN", state().ops[static_cast<size_t>(op)].c_str(), site.number, tensors,
      static_cast<unsigned long long>(site.visits), overload.c_str(), arguments_of(args));
  Py_DECREF(tensors);
  if (said == nullptr) throw_python();
  if (said == Py_None) {
    Py_DECREF(said);
  } else {
    token.held = said;
  }
}

void call_after(Token& token) {
  if (token.held == nullptr) return;
  pybind11::gil_scoped_acquire gil;
  Inside inside;
  PyObject* said = PyObject_CallFunctionObjArgs(state().after, token.held, nullptr);
  if (said == nullptr) throw_python();
  Py_DECREF(said);
}

// Another thread takes part: from now on Python's own numbers carry moments, too.
void call_joined() {
  state().threaded = true;
  pybind11::gil_scoped_acquire gil;
  Inside inside;
  PyObject* said = PyObject_CallFunctionObjArgs(state().joined, nullptr);
  if (said == nullptr) PyErr_Clear();
  Py_XDECREF(said);
}

void refresh_ops();

// Does the write, with everything around it. `counted`: does autograd give the op a node of its own?
// `args`: makes a tuple of the op's arguments, for a close look.
template <class Run, class Args>
void perform(
    int32_t op, const std::string& overload, c10::SmallVector<Note, 2>& notes, bool counted, Run run, const Args& args) {
  Located at = locate(true);
  const bool guarded = state().guarded.load(std::memory_order_relaxed);
  // One step of an optimizer is one event, told elsewhere.
  if (!at.any || (at.step && (!guarded || at.spot.inner.code == nullptr))) {
    if (!guarded || !at.any) return run();
    at = locate(false);
  }
  const Site site = visit(at);
  // The op's own node, if it has one, was numbered just now: the write comes before it.
  const int64_t before = static_cast<int64_t>(at::sequence_number::peek()) - (counted ? 1 : 0);
  if (at.thread != state().home && !state().threaded.load(std::memory_order_relaxed)) call_joined();
  const int64_t moment = state().moment.fetch_add(1, std::memory_order_relaxed);
  if (state().any_exposed.load(std::memory_order_relaxed)) {
    for (Note& note : notes) note_exposure(note, before);
  }
  for (Note& note : notes) note.memory = memory_of(note.tensor);
  Token token;
  if (guarded || worth_a_look(site.visits, site.flags)) call_before(token, op, overload, site, notes, args);
  run();
  for (const Note& note : notes) {
    Record record{before, version_of(note.tensor), 0, 0, at.layer, site.number, op, at.thread, moment};
    bytes_of(note.tensor, record.start, record.end);
    const uintptr_t memory = memory_of(note.tensor);
    keep(memory, record);
    // `set_` and its kin give the tensor other memory: whoever holds the old one is told, too.
    if (note.memory != 0 && note.memory != memory) keep(note.memory, record);
    tell_silent(note, record);
  }
  call_after(token);
}

// The same for the write that comes most often: one tensor, on a line of the user's own that has been looked at. False,
// and nothing done, for any other.
template <class Run>
bool perform_in_a_hurry(int32_t op, const at::Tensor& tensor, bool counted, Run run) {
#ifdef TORCHSAN_OWN_FRAMES
  State& s = state();
  if (s.guarded.load(std::memory_order_relaxed) || s.any_exposed.load(std::memory_order_relaxed)) return false;
  PyThreadState* thread = PyGILState_GetThisThreadState();
  _PyInterpreterFrame* frame = thread != nullptr ? innermost(thread) : nullptr;
  if (frame == nullptr) return false;
  const Instruction here = instruction_of(frame);
  const Direct& known = memo().writes[slot_of(here)];
  if (!(known.instruction == here) || known.generation != generation()) return false;
  auto* site = static_cast<KeptSite*>(known.what);
  if (site == nullptr) {
    run();  // a step of an optimizer
    return true;
  }
  const auto thread_id = static_cast<uint64_t>(thread->thread_id);
  if (thread_id != s.home && !s.threaded.load(std::memory_order_relaxed)) return false;
  const int flags = site->flags.load(std::memory_order_relaxed);
  if (worth_a_look(site->visits.load(std::memory_order_relaxed), flags)) return false;
  site->visits.fetch_add(1, std::memory_order_relaxed);
  Record record{static_cast<int64_t>(at::sequence_number::peek()) - (counted ? 1 : 0), 0, 0, 0, 0, site->number, op,
                thread_id, s.moment.fetch_add(1, std::memory_order_relaxed)};
  run();
  record.version = version_of(tensor);
  bytes_of(tensor, record.start, record.end);
  keep(memory_of(tensor), record);
  return true;
#else
  return false;
#endif
}

bool off() {
  if (!state().recording.load(std::memory_order_relaxed) || inside_callback) return true;
  if (state().new_ops.load(std::memory_order_relaxed)) refresh_ops();
  return false;
}

bool needs_node(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }
template <class T>
bool needs_node(const T&) { return false; }

// The common forms of in-place ops, without boxes: what torch does at this key is to go on and to count a version.
template <class Signature>
struct PlainKernel;

template <class... Rest>
struct PlainKernel<at::Tensor&(at::Tensor&, Rest...)> final : c10::OperatorKernel {
  using Typed = c10::TypedOperatorHandle<at::Tensor&(at::Tensor&, Rest...)>;
  PlainKernel(int32_t op, std::string overload, Typed handle)
      : op_(op), overload_(std::move(overload)), handle_(handle) {}

  at::Tensor& operator()(DispatchKeySet keys, at::Tensor& self, Rest... rest) {
    auto run = [&] {
      {
        at::AutoDispatchBelowADInplaceOrView below;
        handle_.redispatch(keys & c10::after_ADInplaceOrView_keyset, self, rest...);
      }
      torch::autograd::increment_version(self);
    };
    if (off() || !is_ordinary(self)) {
      run();
      return self;
    }
    const bool counted = c10::GradMode::is_enabled() && (needs_node(self) || ... || needs_node(rest));
    if (perform_in_a_hurry(op_, self, counted, run)) return self;
    c10::SmallVector<Note, 2> notes;
    notes.emplace_back();
    notes.back().tensor = self;
    perform(op_, overload_, notes, counted, run, [&] {
      return py::make_tuple(shown_to_python(self), shown_to_python(rest)...);
    });
    return self;
  }

 private:
  int32_t op_;
  std::string overload_;
  Typed handle_;
};

struct WriteKernel final : c10::OperatorKernel {
  WriteKernel(
      int32_t op, std::string overload, std::vector<size_t> written, std::optional<c10::SafeKernelFunction> below)
      : op_(op), overload_(std::move(overload)), written_(std::move(written)), below_(std::move(below)) {}

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    if (off()) return go_on(op, keys, stack);
    c10::SmallVector<Note, 2> notes;
    bool counted = false;
    gather(op, *stack, notes, counted);
    if (notes.empty()) return go_on(op, keys, stack);
    perform(op_, overload_, notes, counted, [&] { go_on(op, keys, stack); }, [&] {
      const size_t count = op.schema().arguments().size();
      py::tuple shown(count);
      for (size_t i = 0; i < count; i++) shown[i] = shown_to_python((*stack)[stack->size() - count + i]);
      return shown;
    });
  }

 private:
  void go_on(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    if (below_) {
      below_->callBoxed(op, keys, stack);
    } else {
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
  }

  static void take(const at::Tensor& tensor, c10::SmallVector<Note, 2>& notes) {
    if (is_ordinary(tensor)) {
      notes.emplace_back();
      notes.back().tensor = tensor;
    }
  }

  void gather(const OperatorHandle& op, const Stack& stack, c10::SmallVector<Note, 2>& notes, bool& counted) const {
    const size_t count = op.schema().arguments().size();
    const size_t first = stack.size() - count;
    for (size_t index : written_) {
      const c10::IValue& value = stack[first + index];
      if (value.isTensor()) {
        take(value.toTensor(), notes);
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorList()) take(tensor, notes);
      }
    }
    if (notes.empty() || !c10::GradMode::is_enabled()) return;
    for (size_t i = first; i < stack.size() && !counted; i++) {
      if (stack[i].isTensor()) {
        const at::Tensor& tensor = stack[i].toTensor();
        counted = tensor.defined() && tensor.requires_grad();
      } else if (stack[i].isTensorList()) {
        for (const at::Tensor& tensor : stack[i].toTensorList()) counted = counted || (tensor.defined() && tensor.requires_grad());
      }
    }
  }

  int32_t op_;
  std::string overload_;
  std::vector<size_t> written_;
  std::optional<c10::SafeKernelFunction> below_;
};

std::vector<c10::RegistrationHandleRAII>& handles() {
  static auto* h = new std::vector<c10::RegistrationHandleRAII>();
  return *h;
}

std::unordered_map<std::string, bool>& wrapped() {
  static auto* w = new std::unordered_map<std::string, bool>();
  return *w;
}

std::vector<size_t> written_arguments(const c10::FunctionSchema& schema) {
  std::vector<size_t> found;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    if (arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite()) found.push_back(i);
  }
  return found;
}

int32_t op_number(const std::string& name) {
  std::lock_guard<std::mutex> guard(state().lock);
  auto found = state().op_numbers.find(name);
  if (found != state().op_numbers.end()) return found->second;
  const auto number = static_cast<int32_t>(state().ops.size());
  state().ops.push_back(name);
  state().op_numbers.emplace(name, number);
  return number;
}

struct Quiet : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// An in-place op of torch's own whose other arguments have these types gets a kernel without boxes.
template <class Signature>
bool wrap_plainly(const OperatorHandle& handle, const std::string& name, const std::vector<std::string>& types) {
  static const std::unordered_set<std::string> special{"resize_", "resize_as_", "set_", "resize_as_sparse_", "set_data"};
  const auto& arguments = handle.schema().arguments();
  if (arguments.size() != types.size() + 1 || name.back() != '_' || special.count(name) != 0) return false;
  if (handle.schema().returns().size() != 1 || written_arguments(handle.schema()) != std::vector<size_t>{0}) return false;
  if (arguments[0].type()->str() != "Tensor") return false;
  for (size_t i = 0; i < types.size(); i++) {
    const std::string is = arguments[i + 1].type()->str();
    if (is != types[i]) return false;
  }
  try {
    auto typed = handle.typed<Signature>();
    auto functor = std::make_unique<PlainKernel<Signature>>(
        op_number(name), c10::toString(handle.operator_name()), typed);
    handles().push_back(c10::Dispatcher::singleton().registerImpl(
        handle.operator_name(), DispatchKey::ADInplaceOrView,
        c10::KernelFunction::makeFromUnboxedFunctor<false, PlainKernel<Signature>>(std::move(functor)), std::nullopt,
        nullptr, "torchsan"));
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

void wrap(const OperatorHandle& handle) {
  const std::string full = c10::toString(handle.operator_name());
  const std::string name = handle.operator_name().name.substr(handle.operator_name().name.find("::") + 2);
  if (name == "detach_" || name == "rename_" || name == "requires_grad_") return;  // no element is written
  std::optional<c10::SafeKernelFunction> below;
  if (handle.hasKernelForDispatchKey(DispatchKey::ADInplaceOrView)) {
    if (handle.isKernelFallthroughKernel(DispatchKey::ADInplaceOrView)) return;
    below = handle.getComputedKernelForDispatchKey(DispatchKey::ADInplaceOrView);
  }
  const bool known = below.has_value() && handle.operator_name().name.rfind("aten::", 0) == 0;
  if (known && (wrap_plainly<at::Tensor&(at::Tensor&)>(handle, name, {}) ||
                wrap_plainly<at::Tensor&(at::Tensor&, const at::Scalar&)>(handle, name, {"Scalar"}) ||
                wrap_plainly<at::Tensor&(at::Tensor&, const at::Tensor&)>(handle, name, {"Tensor"}) ||
                wrap_plainly<at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&)>(
                    handle, name, {"Tensor", "Tensor", "Scalar"}) ||
                wrap_plainly<at::Tensor&(at::Tensor&, const at::Tensor&, bool)>(handle, name, {"Tensor", "bool"}) ||
                wrap_plainly<at::Tensor&(at::Tensor&, const at::Tensor&, const at::Scalar&)>(
                    handle, name, {"Tensor", "Scalar"}))) {
    wrapped()[full] = true;
    return;
  }
  auto functor = std::make_unique<WriteKernel>(
      op_number(name), full, written_arguments(handle.schema()), std::move(below));
  handles().push_back(c10::Dispatcher::singleton().registerImpl(
      handle.operator_name(), DispatchKey::ADInplaceOrView,
      c10::KernelFunction::makeFromBoxedFunctor<WriteKernel>(std::move(functor)), std::nullopt, nullptr, "torchsan"));
  wrapped()[full] = true;
}

// Kernels for the ops that have none of ours yet.
void refresh_ops() {
  static std::recursive_mutex one_at_a_time;
  std::lock_guard<std::recursive_mutex> guard(one_at_a_time);
  state().new_ops = false;
  Quiet quiet;  // torch warns of each kernel that is put on top of another
  c10::WarningUtils::WarningHandlerGuard silence(&quiet);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (wrapped().count(c10::toString(name)) != 0) continue;
    auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle || !handle->schema().is_mutable()) continue;
    wrap(*handle);
  }
}

class Listener final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const OperatorHandle&) override { state().new_ops = true; }
  void onOperatorDeregistered(const OperatorHandle& handle) override {
    wrapped().erase(c10::toString(handle.operator_name()));
  }
};

// -- what Python asks for ---------------------------------------------------------------------------

void start(
    py::object describe, py::object arrive, py::object before, py::object after, py::object joined, uint64_t home) {
  State& s = state();
  s.home = home;
  s.threaded = false;
  {
    std::lock_guard<std::mutex> guard(s.lock);
    s.stories.clear();
    s.forgotten++;
    s.sites.clear();
    s.exposed.clear();
    s.silent.clear();
  }
  s.any_exposed = false;
  {
    std::lock_guard<std::mutex> guard(codes().lock);
    codes().flags.clear();
    codes().generation++;
    codes().describe = describe.release().ptr();
  }
  s.arrive = arrive.release().ptr();
  s.before = before.release().ptr();
  s.after = after.release().ptr();
  s.joined = joined.release().ptr();
  static auto* listening = new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>()));
  (void)listening;
  refresh_ops();
  s.recording = true;
}

void stop() {
  State& s = state();
  s.recording = false;
#ifdef TORCHSAN_OWN_FRAMES
  stop_nodes();
#endif
  while (!handles().empty()) handles().pop_back();
  wrapped().clear();
  std::lock_guard<std::mutex> guard(s.lock);
  s.exposed.clear();
  s.any_exposed = false;
}

py::list records_of(const Story& story) {
  py::list found;
  for (size_t i = 0; i < story.records.size(); i++) {
    const Record& r = story.records[(story.next + i) % story.records.size()];
    found.append(py::make_tuple(r.before, r.site, state().ops[static_cast<size_t>(r.op)], r.version, r.start, r.end, r.layer, r.thread, r.moment));
  }
  return found;
}

py::list writes(uintptr_t memory) {
  Story story;
  {
    std::lock_guard<std::mutex> guard(state().lock);
    auto found = state().stories.find(memory);
    if (found == state().stories.end()) return py::list();
    story = found->second;
  }
  return records_of(story);
}

std::vector<uintptr_t> memories() {
  std::lock_guard<std::mutex> guard(state().lock);
  std::vector<uintptr_t> found;
  for (auto& entry : state().stories) found.push_back(entry.first);
  return found;
}

py::list take_silent() {
  std::vector<Silent> taken;
  {
    std::lock_guard<std::mutex> guard(state().lock);
    taken.swap(state().silent);
  }
  py::list found;
  for (const Silent& s : taken) {
    const Record& r = s.record;
    found.append(py::make_tuple(
        s.memory, py::make_tuple(r.before, r.site, state().ops[static_cast<size_t>(r.op)], r.version, r.start, r.end, r.layer, r.thread, r.moment)));
  }
  return found;
}

bool any_silent() {
  std::lock_guard<std::mutex> guard(state().lock);
  return !state().silent.empty();
}

// -- `.data`, read ----------------------------------------------------------------------------------

void expose(const at::Tensor& tensor) {
  if (!is_ordinary(tensor) || tensor.is_inference()) return;
  const Located at = locate(true);
  if (!at.any || at.step) return;
  const Site site = visit(at);
  State& s = state();
  std::lock_guard<std::mutex> guard(s.lock);
  auto found = s.exposed.find(memory_of(tensor));
  if (found != s.exposed.end()) {
    // Of several tensors on one memory the one that takes part in a graph counts.
    const auto known = found->second.original.lock();
    if (!known || (known.get() != tensor.unsafeGetTensorImpl() && tensor.requires_grad() && !known->requires_grad())) {
      found->second.original = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
      found->second.told_before = -1;
    }
    if (!known || known.get() == tensor.unsafeGetTensorImpl()) found->second.site = site.number;
  } else {
    if (s.exposed.size() >= s.most_exposed) s.exposed.clear();
    s.exposed.emplace(
        memory_of(tensor),
        Exposed{
            c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
            tensor.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl(), site.number});
  }
  s.any_exposed = true;
}

PyGetSetDef* data_slot = nullptr;

PyObject* get_data(PyObject*, PyObject* self) {
  PyObject* result = data_slot->get(self, data_slot->closure);
  if (result == nullptr || !state().recording.load(std::memory_order_relaxed) || !THPVariable_Check(self)) return result;
  try {
    expose(THPVariable_Unpack(self));
  } catch (...) {
    PyErr_Clear();
  }
  return result;
}

PyMethodDef get_data_method = {"data", get_data, METH_O, nullptr};

py::object data_getter(py::object descriptor) {
  if (Py_TYPE(descriptor.ptr()) != &PyGetSetDescr_Type) throw py::type_error("a getset descriptor is needed");
  data_slot = reinterpret_cast<PyGetSetDescrObject*>(descriptor.ptr())->d_getset;
  return py::reinterpret_steal<py::object>(PyCFunction_New(&get_data_method, nullptr));
}

// -- `x[i] = v`, whose index only the caller knows --------------------------------------------------

PyObject* look_at_index = nullptr;
PyTypeObject* tensor_base = nullptr;

PyObject* set_item(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count == 2 && state().recording.load(std::memory_order_relaxed) && !inside_callback) {
    uint64_t visits = 0;
    bool look = true;
    try {
      const Located at = locate(true);
      look = at.any && !at.step;
      if (look) {
        const Site site = visit(at);
        visits = site.visits;
        look = worth_a_look(visits, site.flags & ~NO_LOOK);
      }
    } catch (...) {
      PyErr_Clear();
      look = false;
    }
    if (look) {
      PyObject* seen = PyLong_FromUnsignedLongLong(visits);
      PyObject* said = PyObject_CallFunctionObjArgs(look_at_index, self, args[0], args[1], seen, nullptr);
      Py_DECREF(seen);
      return said;
    }
  }
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "expected 2 arguments");
    return nullptr;
  }
  if (tensor_base->tp_as_mapping->mp_ass_subscript(self, args[0], args[1]) < 0) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyMethodDef set_item_method = {
    "__setitem__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(set_item)), METH_FASTCALL,
    "Set self[key] to value."};

// A method of tensors; `look` is called instead on the visits of a line that deserve it.
py::object item_setter(py::object base, py::object look) {
  look_at_index = look.release().ptr();
  tensor_base = reinterpret_cast<PyTypeObject*>(base.ptr());
  return py::reinterpret_steal<py::object>(
      PyDescr_NewMethod(tensor_base, &set_item_method));
}

// Look at the next visits of a line, too, or no more.
void follow(int32_t number, bool on) {
  std::lock_guard<std::mutex> guard(state().lock);
  for (auto& entry : state().sites) {
    if (entry.second.number != number) continue;
    if (on) {
      entry.second.flags |= FOLLOWED;
    } else {
      entry.second.flags &= ~FOLLOWED;
    }
  }
}

int64_t exposed_at(uintptr_t memory) {
  std::lock_guard<std::mutex> guard(state().lock);
  auto found = state().exposed.find(memory);
  return found == state().exposed.end() ? -1 : found->second.site;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("start", &start);
  m.def("stop", &stop);
  m.def("record", [](bool on) { state().recording = on; });
  m.def("guard", [](bool on) { state().guarded = on; });
  m.def("refresh", [] { if (state().new_ops) refresh_ops(); });
  m.def("writes", &writes);
  m.def("memories", &memories);
  m.def("take_silent", &take_silent);
  m.def("any_silent", &any_silent);
  m.def("data_getter", &data_getter);
  m.def("exposed_at", &exposed_at);
  m.def("follow", &follow);
  m.def("expose", &expose);
  m.def("item_setter", &item_setter);
  m.def("moment", [] { return state().moment.fetch_add(1); });
#ifdef TORCHSAN_OWN_FRAMES
  m.def("start_nodes", &start_nodes);
  m.def("spare_marks", &spare_marks);
  m.def("nodes", [](bool on) { node_lines().on = on; });
  m.def("in_region", [](bool in) { node_lines().in_region = in; });
#endif
  m.def("counts", [] {
    std::lock_guard<std::mutex> guard(state().lock);
    size_t records = 0;
    for (auto& entry : state().stories) records += entry.second.records.size();
    py::dict found;
    found["records"] = records;
    found["memories"] = state().stories.size();
    found["sites"] = state().sites.size();
    found["exposed"] = state().exposed.size();
    found["silent"] = state().silent.size();
#ifdef TORCHSAN_OWN_FRAMES
    size_t ready = node_lines().empty.size();
    for (auto& entry : node_lines().ready) ready += entry.second->dicts.size();
    found["ready"] = ready;
#endif
    return found;
  });
  m.def("wrapped", [] { return wrapped().size(); });
}
