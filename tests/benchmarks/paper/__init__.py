"""The experiments of SSTD, section 7, as commands: ``make paper``, ``make paper FIG=8``.

- :mod:`.specs`: the figures, each a few declarative panels: what is varied, what is compared, what the paper says;
- :mod:`.workloads`: the data sets and queries;
- :mod:`.systems`, :mod:`.rivals`: the global indexes that are compared, and slots filled under one of them;
- :mod:`.counting`: what answering costs, counted and in CPU time;
- :mod:`.rebalancing`: figures 14 and 15, by :mod:`tests.benchmarks.bench_rebalance`;
- :mod:`.engine`: measures the points that have no file yet;
- :mod:`.verdicts`: whether a figure agrees with the paper's, and if not, which count makes the difference;
- :mod:`.charts`, :mod:`.page`, :mod:`.text`: pictures, and ``docs/paper.md``.
"""
