"""Calls replayed from CUDA graphs: what a function launches is captured once for each shape, and no longer launched."""

from groundspeed.nn.graphs.api import compile_graphs as compile_graphs
from groundspeed.nn.graphs.graphed import Graphed as Graphed
