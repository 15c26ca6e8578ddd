"""Cycles in a directed graph, in linear time (Tarjan's strongly connected components, without recursion)."""

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def find_cycles(graph: Mapping[N, Mapping[N, None]]) -> list[list[N]]:
    """The components of more than one node: each node of one can be reached from each other."""
    number: dict[N, int] = {}
    low: dict[N, int] = {}
    open_nodes: dict[N, None] = {}
    found: list[list[N]] = []
    for root in graph:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        open_nodes[root] = None
        path: list[tuple[N, Iterator[N]]] = [(root, iter(graph[root]))]
        while path:
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    component: list[N] = []
                    while not component or component[-1] != node:
                        component.append(open_nodes.popitem()[0])
                    if len(component) > 1:
                        found.append(component)
            elif following not in number:
                number[following] = low[following] = len(number)
                open_nodes[following] = None
                path.append((following, iter(graph.get(following, ()))))
            elif following in open_nodes:
                low[node] = min(low[node], number[following])
    return found
