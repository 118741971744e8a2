"""The benchmark suite: problems, hand-written references, peers, runner and report."""
