// Frames of the running thread: which code they run, and where.
#pragma once

#include <torch/extension.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
// The frames of the running thread can be read without the interpreter's lock, by that thread alone.
#define TORCHSAN_OWN_FRAMES 1
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <internal/pycore_frame.h>
#endif

namespace torchsan {

// What Python says of a code object (`describe`).
enum : int { USER = 1, OURS = 2, STEP = 4, FORWARD = 8, SHOWN = 16, COMPILER = 32 };

// An instruction of a code object.
struct Instruction {
  PyCodeObject* code = nullptr;
  int at = 0;
  bool operator==(const Instruction& o) const { return code == o.code && at == o.at; }
  size_t hash() const { return reinterpret_cast<size_t>(code) * 0x9E3779B97F4A7C15ull + static_cast<size_t>(at); }
};

// We call back into Python from inside torch; what Python then does with torch is none of the program's doing.
inline thread_local bool inside_callback = false;

struct Inside {
  Inside() { inside_callback = true; }
  ~Inside() { inside_callback = false; }
};

// What is known of code, by all threads. Python keeps each code object that it was asked about.
struct Codes {
  std::mutex lock;
  std::unordered_map<PyCodeObject*, int> flags;
  PyObject* describe = nullptr;
  // Grows whenever something is forgotten, and with it what threads know.
  std::atomic<uint64_t> generation{1};
};

inline Codes& codes() {
  static auto* c = new Codes();  // never destroyed: kernels may run while the interpreter ends
  return *c;
}

// What a thread remembers, so that it need not ask what all threads share.
constexpr size_t CODES = 256, DIRECT = 64;

struct Remembered {
  PyCodeObject* code = nullptr;
  uint64_t generation = 0;
  int flags = 0;
};

// An instruction of the program that does by itself what we watch: `what` is ours to know.
struct Direct {
  Instruction instruction;
  uint64_t generation = 0;
  void* what = nullptr;
};

struct Memo {
  Remembered codes[CODES];
  Direct writes[DIRECT];
  Direct nodes[DIRECT];
  // The memory that was written last, and its story.
  uintptr_t memory = 0;
  uint64_t stories = 0;
  void* story = nullptr;
};

inline Memo& memo() {
  static thread_local std::unique_ptr<Memo> owner;
  static thread_local Memo* mine __attribute__((tls_model("initial-exec"))) = nullptr;
  if (C10_UNLIKELY(mine == nullptr)) {
    owner = std::make_unique<Memo>();
    mine = owner.get();
  }
  return *mine;
}

inline size_t slot_of(const Instruction& i) {
  return ((reinterpret_cast<size_t>(i.code) >> 4) ^ static_cast<size_t>(i.at >> 1)) % DIRECT;
}

inline int ask_describe(PyCodeObject* code) {
  pybind11::gil_scoped_acquire gil;
  Inside inside;
  PyObject* said = PyObject_CallFunctionObjArgs(codes().describe, reinterpret_cast<PyObject*>(code), nullptr);
  if (said == nullptr) {
    PyErr_Clear();
    return OURS;
  }
  int flags = static_cast<int>(PyLong_AsLong(said));
  Py_DECREF(said);
  std::lock_guard<std::mutex> guard(codes().lock);
  codes().flags[code] = flags;
  return flags;
}

inline int learn_flags(PyCodeObject* code) {
  {
    std::lock_guard<std::mutex> guard(codes().lock);
    auto found = codes().flags.find(code);
    if (found != codes().flags.end()) return found->second;
  }
  return ask_describe(code);
}

inline int flags_of(PyCodeObject* code) {
  Remembered& known = memo().codes[(reinterpret_cast<size_t>(code) >> 4) % CODES];
  const uint64_t generation = codes().generation.load(std::memory_order_relaxed);
  if (known.code != code || known.generation != generation) known = Remembered{code, generation, learn_flags(code)};
  return known.flags;
}

#ifdef TORCHSAN_OWN_FRAMES
inline _PyInterpreterFrame* innermost(PyThreadState* thread) {
  _PyInterpreterFrame* frame = thread->cframe->current_frame;
  while (frame != nullptr && _PyFrame_IsIncomplete(frame)) frame = frame->previous;
  return frame;
}

inline _PyInterpreterFrame* outer(_PyInterpreterFrame* frame) {
  do {
    frame = frame->previous;
  } while (frame != nullptr && _PyFrame_IsIncomplete(frame));
  return frame;
}

inline Instruction instruction_of(_PyInterpreterFrame* frame) {
  return {frame->f_code, _PyInterpreterFrame_LASTI(frame) * static_cast<int>(sizeof(_Py_CODEUNIT))};
}
#endif

}  // namespace torchsan
