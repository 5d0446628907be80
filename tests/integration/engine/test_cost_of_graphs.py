"""A step of a long graph costs the same at its end as at its beginning."""

from __future__ import annotations

import pytest

from benchmarks.graphs import chain, fan_out, layers, measure
from leadhand.graphs.documents import GraphDocument

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(layers(10, 12), id="layers"),
        pytest.param(chain(100), id="chain"),
        pytest.param(fan_out(300, 20), id="list"),
    ],
)
def test_the_last_steps_of_a_graph_cost_no_more_than_the_first(
    document: GraphDocument, store_url: str
) -> None:
    found = measure(store_url, document)
    assert found.last.commands <= found.first.commands + 2
