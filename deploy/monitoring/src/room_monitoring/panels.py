"""What a panel is, and how panels become a dashboard that Grafana accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.builders import common, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus as prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH: Final = 8
_HEIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class Query:
    """``expr`` with ``$ns`` where the matcher of the installation belongs, and the legend of its series."""

    expr: str
    legend: str

    @property
    def promql(self) -> str:
        """As Grafana sends it, but for Grafana's own variables."""
        return self.expr.replace("$ns", 'namespace=~"$namespace"')


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph. ``unit`` is Grafana's name of it."""

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]

    def build(self) -> timeseries.Panel:
        """The builder of it."""
        panel = (
            timeseries.Panel()
            .title(self.title)
            .description(self.description)
            .unit(self.unit)
            .min(0)
            .datasource(SOURCE)
            .span(_WIDTH)
            .height(_HEIGHT)
            .fill_opacity(8)
            .legend(
                common.VizLegendOptions()
                .show_legend(True)
                .display_mode(LegendDisplayMode.LIST)
                .placement(LegendPlacement.BOTTOM)
                .calcs([])
            )
            .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        )
        for number, query in enumerate(self.queries):
            panel = panel.with_target(
                prometheus.Dataquery()
                .ref_id(chr(ord("A") + number))
                .expr(query.promql)
                .legend_format(query.legend)
                .exemplar(True)
                .range()
            )
        return panel


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. ``name`` is its file's, ``room-<name>`` its uid, which stays when the title changes."""

    name: str
    title: str
    description: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    variables: tuple[tuple[str, str, str], ...] = ()
    """Further variables: name, label, query of their values."""


def render(board: Board) -> str:
    """The JSON that Grafana loads."""
    built = (
        builders.Dashboard(board.title)
        .uid(f"room-{board.name}")
        .description(board.description)
        .tags(["room"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_values("namespace", "Namespace", "label_values(room_build_info, namespace)"))
    )
    for name, label, query in board.variables:
        built = built.with_variable(_values(name, label, query))
    for title, panels in board.rows:
        built = built.with_row(builders.Row(title))
        for panel in panels:
            built = built.with_panel(panel.build())
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def _values(name: str, label: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .include_all(True)
        .all_value(".*")
        .multi(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def queries(boards: Sequence[Board]) -> list[str]:
    """Every query of every panel."""
    return [query.promql for board in boards for _, panels in board.rows for panel in panels for query in panel.queries]
