"""Define-by-run tensors: PyTorch's semantics on the compiler.

Operations on ``Tensor`` objects are recorded in a graph (``graph``); a value that is looked at, and
``backward``, compile what is needed of it to one native function (``plans``), found again by the
structure of the graph.  ``rules`` say what an operation means in the IR; ``tapec.autograd`` is the
part that users see.
"""
