// The line of each autograd node. Torch makes a small object for each node while anomaly mode is on, and asks it for the
// stack; its own imports a module and calls Python for that. Ours takes a dictionary that is ready, with the line in it,
// without touching the interpreter. Python sees the same as ever: `node.metadata["traceback_"]`.
#pragma once

#include "frames.h"

#ifdef TORCHSAN_OWN_FRAMES
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <pthread.h>

namespace torchsan {

constexpr size_t MOST_READY = 2048, LARGEST_BATCH = 64;

// Dictionaries that name one site, ready for nodes that are made there. Only the home thread takes and gives back.
struct Ready {
  PyObject* site = nullptr;
  std::vector<PyObject*> dicts;
  size_t batch = 2;
  std::atomic<size_t> lent{0};
  bool retired = false;
};

struct NodeKey {
  Instruction inner, shown, user;
  bool operator==(const NodeKey& o) const { return inner == o.inner && shown == o.shown && user == o.user; }
};

struct NodeKeyHash {
  size_t operator()(const NodeKey& k) const {
    size_t h = k.inner.hash() ^ (k.user.hash() * 0xC2B2AE3D27D4EB4Full) ^ (k.shown.hash() * 31);
    return h ^ (h >> 29);
  }
};

struct NodeLines {
  // Whether nodes are ours to tell; off while anything special is going on that only Python can judge.
  std::atomic<bool> on{false};
  std::atomic<bool> in_region{false};
  pthread_t home{};
  PyObject* slowly = nullptr;
  PyObject* key = nullptr;
  PyTypeObject* site_type = nullptr;
  std::unordered_map<NodeKey, Ready*, NodeKeyHash> ready;
  std::vector<PyObject*> empty;
};

inline NodeLines& node_lines() {
  static auto* n = new NodeLines();
  return *n;
}

inline bool at_home() { return pthread_equal(pthread_self(), node_lines().home) != 0; }

inline PyObject* empty_dict() {
  auto& empty = node_lines().empty;
  if (empty.empty()) {
    pybind11::gil_scoped_acquire gil;
    for (int i = 0; i < 8; i++) empty.push_back(PyDict_New());
  }
  PyObject* dict = empty.back();
  empty.pop_back();
  return dict;
}

inline void make_ready(Ready& ready) {
  pybind11::gil_scoped_acquire gil;
  for (size_t i = 0; i < ready.batch; i++) {
    PyObject* dict = PyDict_New();
    PyDict_SetItem(dict, node_lines().key, ready.site);
    ready.dicts.push_back(dict);
  }
  ready.batch = std::min(2 * ready.batch, LARGEST_BATCH);
}

// Where a node is being made; false where only Python can tell.
inline bool find_key(NodeKey& key) {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr) return false;
  for (_PyInterpreterFrame* frame = innermost(thread); frame != nullptr; frame = outer(frame)) {
    const int flags = flags_of(frame->f_code);
    if (flags & COMPILER) return false;
    if (flags & OURS) continue;
    const Instruction here = instruction_of(frame);
    if (key.inner.code == nullptr) key.inner = here;
    if (flags & USER) {
      key.user = here;
      return true;
    }
    if ((flags & SHOWN) && key.shown.code == nullptr) key.shown = here;
  }
  return key.inner.code != nullptr;
}

inline Ready* ask_slowly(const NodeKey& key, PyObject* dict) {
  pybind11::gil_scoped_acquire gil;
  PyObject* said = PyObject_CallFunctionObjArgs(node_lines().slowly, nullptr);
  if (said == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  PyDict_SetItem(dict, node_lines().key, said);
  Ready* ready = nullptr;
  // Anything but a plain site is about this one node.
  if (key.inner.code != nullptr && Py_TYPE(said) == node_lines().site_type && node_lines().on) {
    ready = new Ready();
    ready->site = said;
    Py_INCREF(said);
    node_lines().ready[key] = ready;
  }
  Py_DECREF(said);
  return ready;
}

inline Ready* ready_at(PyObject* dict, bool& told) {
  NodeLines& lines = node_lines();
  Memo& mine = memo();
  const uint64_t generation = codes().generation.load(std::memory_order_relaxed);
  PyThreadState* thread = PyGILState_GetThisThreadState();
  _PyInterpreterFrame* frame = thread != nullptr ? innermost(thread) : nullptr;
  if (frame == nullptr) {
    ask_slowly(NodeKey{}, dict);
    told = true;
    return nullptr;
  }
  const Instruction here = instruction_of(frame);
  Direct& direct = mine.nodes[slot_of(here)];
  if (direct.instruction == here && direct.generation == generation) return static_cast<Ready*>(direct.what);
  NodeKey key;
  Ready* ready = nullptr;
  if (find_key(key)) {
    auto found = lines.ready.find(key);
    if (found != lines.ready.end()) ready = found->second;
  } else {
    key = NodeKey{};
  }
  if (ready == nullptr) {
    ready = ask_slowly(key, dict);
    told = true;
  }
  if (ready != nullptr && key.user == here) direct = Direct{here, generation, ready};
  return ready;
}

// Torch reads the dictionary at the place where its own class has it: the first member after those of the base.
struct NodeNote final : torch::autograd::AnomalyMetadata {
  PyObject* dict;
  Ready* from = nullptr;
  uint64_t tag = 0;

  NodeNote() : dict(empty_dict()) {}

  ~NodeNote() override {
    if (from != nullptr && at_home() && !from->retired && Py_REFCNT(dict) == 1 &&
        reinterpret_cast<PyDictObject*>(dict)->ma_version_tag == tag && from->dicts.size() < MOST_READY) {
      // Nobody has looked at it or holds it: the next node of this line takes it.
      from->dicts.push_back(dict);
      from->lent--;
      return;
    }
    if (!Py_IsInitialized()) return;
    pybind11::gil_scoped_acquire gil;
    Py_DECREF(dict);
    if (from != nullptr && --from->lent == 0 && from->retired) {
      Py_DECREF(from->site);
      delete from;
    }
  }

  void store_stack() override {
    bool told = false;
    Ready* ready = ready_at(dict, told);
    if (told || ready == nullptr) return;
    if (ready->dicts.empty()) make_ready(*ready);
    node_lines().empty.push_back(dict);
    dict = ready->dicts.back();
    ready->dicts.pop_back();
    tag = reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
    ready->lent++;
    from = ready;
  }

  void print_stack(const std::string& name) override {
    TORCH_WARN(
        "Error detected in ", name,
        ". No forward pass information available. Enable detect anomaly during forward pass for more information.");
  }

  void assign_parent(const c10::intrusive_ptr<torch::autograd::Node>&) override {}
};

// Stands in front of torch's engine, for the one question that we answer ourselves.
struct NodeEngine final : torch::autograd::Engine {
  explicit NodeEngine(torch::autograd::Engine& engine) : real(engine) {}
  torch::autograd::Engine& real;

  torch::autograd::variable_list execute(
      const torch::autograd::edge_list& roots, const torch::autograd::variable_list& inputs, bool keep_graph,
      bool create_graph, bool accumulate_grad, const torch::autograd::edge_list& outputs) override {
    return real.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, c10::intrusive_ptr<torch::autograd::Node> root,
      torch::autograd::InputBuffer&& buffer) override {
    return real.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    NodeLines& lines = node_lines();
    const bool ours = lines.on.load(std::memory_order_relaxed) && !lines.in_region.load(std::memory_order_relaxed) &&
        torch::autograd::AnomalyMode::is_enabled() && at_home() && !torch::autograd::get_current_node();
    if (ours) return std::make_unique<NodeNote>();
    return real.make_anomaly_metadata();
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return real.get_default_saved_variable_hooks();
  }
};

inline NodeEngine*& node_engine() {
  static NodeEngine* engine = nullptr;
  return engine;
}

// Does torch keep the dictionary where we think it does?
inline bool layout_fits(torch::autograd::Engine& engine) {
  struct Mirror : torch::autograd::AnomalyMetadata {
    PyObject* dict;
  };
  static_assert(sizeof(Mirror) == sizeof(torch::autograd::AnomalyMetadata) + sizeof(PyObject*));
  auto made = engine.make_anomaly_metadata();
  return typeid(*made).name() != nullptr && std::strstr(typeid(*made).name(), "PyAnomalyMetadata") != nullptr &&
      PyDict_CheckExact(static_cast<Mirror*>(made.get())->dict);
}

// From now on, in this thread; False where it cannot be done.
inline bool start_nodes(py::object slowly, py::object site_type) {
  NodeLines& lines = node_lines();
  if (node_engine() == nullptr) {
    auto& real = torch::autograd::Engine::get_default_engine();
    if (!layout_fits(real)) return false;
    node_engine() = new NodeEngine(real);
    lines.key = PyUnicode_InternFromString("traceback_");
  }
  Py_XDECREF(lines.slowly);
  lines.slowly = slowly.release().ptr();
  lines.site_type = reinterpret_cast<PyTypeObject*>(site_type.release().ptr());
  lines.home = pthread_self();
  torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& { return *node_engine(); });
  return true;
}

// How many references to each mark are ours, and no node's: dictionaries that wait for the next one.
inline py::dict spare_marks() {
  std::unordered_map<PyObject*, size_t> spare;
  for (auto& entry : node_lines().ready) spare[entry.second->site] += entry.second->dicts.size() + 1;
  py::dict found;
  for (auto& entry : spare) found[py::int_(reinterpret_cast<size_t>(entry.first))] = entry.second;
  return found;
}

inline void stop_nodes() {
  NodeLines& lines = node_lines();
  lines.on = false;
  if (node_engine() == nullptr) return;
  torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& { return node_engine()->real; });
  codes().generation++;
  if (!at_home()) return;
  for (auto& entry : lines.ready) {
    Ready* ready = entry.second;
    for (PyObject* dict : ready->dicts) Py_DECREF(dict);
    ready->dicts.clear();
    ready->retired = true;
    if (ready->lent == 0) {
      Py_DECREF(ready->site);
      delete ready;
    }
  }
  lines.ready.clear();
}

}  // namespace torchsan
#endif
