"""Calls replayed from CUDA graphs: the launches of a function are captured once for each shape and then replayed."""

from groundspeed.nn.graphs.api import compile_graphs as compile_graphs
from groundspeed.nn.graphs.graphed import Graphed as Graphed
