"""Exploration in machine code or NumPy: the same search as the plain one, to the number of every state.

``packing`` puts a state into one or two words of 64 bits, ``dataflow`` says what a step computes, ``native`` (numba)
and ``vector`` (NumPy) run it, and ``search`` is the search that both drive. Needs the extra ``fast``.
"""
