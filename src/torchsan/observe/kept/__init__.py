"""What autograd keeps until backward: which memory, because of which line, in which module, and who holds the graph.

`saved` reads a graph; `owners` tells which module was running; `measuring` does both at the backward passes of a run;
`growth` sees graphs that outlive their step.
"""
