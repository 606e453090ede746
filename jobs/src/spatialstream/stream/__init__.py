"""The deciders: epochs and rounds, clocks, adoption of routing versions, load reports."""
