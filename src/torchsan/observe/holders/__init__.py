"""Who holds memory, since when, and what they do with it: the model behind every alias finding.

**The principle.** A write is a hazard when somebody else who holds the memory took it before the write and later reads
it as if it had not been written. Three facts decide it, and none of them is a name:

1. *Who else holds it.* Every slot from which the program can reach the memory: locals of the frames that run, globals
   of the user's modules, attributes, items of containers of any nesting, closures, defaults, class attributes, results
   kept by `functools.lru_cache`, frames of generators, NumPy arrays and views. `census` walks them; memory is compared
   by address and stride (`extents`), since two storages can be one memory.
2. *When they took it.* `takings` remembers for each slot what the memory held when the slot was first seen. Two slots
   that were filled at different times, with a write between, and agree now, hold one value where two were meant: nobody
   stores a live reference twice.
3. *What happens after.* `reading` follows the bytecode from the write on: which names are read before they are bound
   anew, and in which expression. `manner` tells how a write treats what was there: it replaces it, edits it with
   constants, transforms it, or adds data to it. An accumulator, a cache and a ring buffer are written with data, and
   whoever holds them wants the new values; a value that is shifted, scaled or rectified in place was somebody's value.

**What is proof.** A write that gives other values when it is done on memory of its own (`overlaps`) is wrong whatever
was meant. A difference of memory with itself under two names is zero whatever was meant. Entries of a history that were
different when they were stored and are equal now have lost their values. These are told as warnings. Where a live
reference would make sense too, the finding is `possible`, and hidden unless it is asked for.

**What it costs.** A census walks what is reachable from the user's own frames and modules. It is taken at the first
visits of a writing line and then ever more rarely, and all of them together stay within a share of the process's
time (`schedule`).
"""
