"""The page of a run: which sections it has, and what they contain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from groundspeed.judge.beside import Beside
from groundspeed.judge.cost import cost_of
from groundspeed.judge.grading.targets import goals
from groundspeed.judge.grading.traits import Fact
from groundspeed.judge.judgement import Judgement
from groundspeed.report import (
    attempts,
    commands,
    experts,
    fairness,
    lengths,
    overheads,
    page,
    reader,
    recommendations,
    rivals,
    rows,
    text,
    words,
)
from groundspeed.report.calibration import noise_lines, roof_lines
from groundspeed.report.charts.frame import missing, same_kernels
from groundspeed.report.environment import environment_parts
from groundspeed.report.graded import Section, graded
from groundspeed.report.html import curves, library, roofline, samples, sections, series, speedups
from groundspeed.report.html.figure import Figure, chosen_styles, legend
from groundspeed.report.interpretation import interpretation
from groundspeed.report.profile import section, views
from groundspeed.report.protocol import protocol_lines

FEW = 60
"""Rows of a table that are shown before the reader asks for all; page.css has the same number."""
TALL = 60
"""A chart with more rows than this scrolls inside its frame."""


def to_html(
    judgement: Judgement,
    identity: str,
    price_per_hour: float | None = None,
    shared: page.Shared | None = None,
    profiles: Sequence[Beside] = (),
    log: str = "",
) -> str:
    """Return the page. In a site, the drawing library is among the shared scripts; a standalone page contains it."""
    record = judgement.record
    groups = series.groups(judgement)
    speed_ups, under_roofs, kept = speedups.draw(judgement), roofline.draw(judgement), samples.keep(judgement)
    lines = [(group, _lines(judgement, group, "" if i == 0 else f"-{i + 1}")) for i, group in enumerate(groups)]
    drawn = [figure for _, some in lines for figure in some]
    memory = curves.memory(judgement, groups[0]) if groups else None
    figures = {
        figure.name: figure
        for figure in (speed_ups, *drawn, memory, under_roofs and under_roofs.figure, *_samples(judgement, kept))
        if figure
    }
    calibration = record.calibration
    left_out = list(missing(judgement.cases, [c.name for c in record.measured]))
    grade = graded(judgement, identity, partial(_where, identity), profiles)
    return page.render(
        "report.html",
        scripts=[*(() if shared else (library.javascript(),)), page.source("charts.js")],
        shared=shared,
        judgement=judgement,
        run=record.run,
        identity=identity,
        headlines=sections.headlines(judgement),
        unclaimed=[said for supported, said in words.claim_lines(judgement) if not supported],
        best_rivals=list(rivals.lines(judgement)),
        title=words.title(judgement),
        interpretation=interpretation(judgement),
        recommendations=recommendations.table(judgement),
        nothing=recommendations.NOTHING,
        legend_keys=legend(judgement),
        figures=figures,
        charts={name: figure.data for name, figure in figures.items()},
        curves=[(group, some) for group, some in lines if some],
        in_no_line=len(judgement.cases) - sum(len(one.points) for group in groups for one in group.series),
        held=groups[0].held if groups else "",
        left_out=left_out,
        not_drawn=[*left_out, *same_kernels(record)],
        scores=curves.scores(memory, groups[0]) if memory else "",
        roofs=under_roofs.roofs if under_roofs else [],
        l2_resident=sum(case.l2_resident for case in judgement.cases),
        kept=kept,
        tables=[
            table
            for table in (
                sections.answer_first(rows.results(judgement)),
                sections.answer_first(rows.speed_ups(judgement, on_page=True)),
                rows.distribution(judgement),
                rows.correctness(judgement),
            )
            if table.rows
        ],
        grids=rows.grids(judgement),
        grade=grade,
        grade_place=_grade_place(judgement, grade),
        profiles=section.parts(profiles, "html"),
        no_profile=section.how_to(judgement, identity, "html"),
        of_revisions=section.OF_WHAT_IS_GONE,
        no_claim=views.NO_CLAIM.replace("`", ""),
        targets=rows.targets(judgement),
        targets_of=rows.targets_of(judgement),
        matrix=sections.matrix(judgement),
        matrix_names=sections.columns_of_matrix(judgement),
        contenders=fairness.contenders(judgement),
        correctness=sections.correctness(judgement),
        experts=experts.table(judgement, profiles),
        overheads=overheads.parts(judgement),
        lengths=lengths.parts(judgement),
        kernels=sections.kernels(judgement),
        timers=sections.timers(judgement),
        see_it=words.SEE_IT,
        notes=[note for note in words.notes(judgement) if note.word != "kernels"],  # kernels have a section
        warned=text.plural(len(judgement.warnings), "warning") if judgement.warnings else "",
        meanings=reader.MEANINGS,
        attempts=reader.attempts(record),
        log=attempts.as_html(log) if log else "",
        protocol=list(protocol_lines(record)),
        calibration=[*roof_lines(calibration, judgement.peaks), *noise_lines(calibration, record.run.device)]
        if calibration
        else [],
        environment=list(environment_parts(record.environment)),
        cost=words.cost(cost_of(judgement, price_per_hour)),
        commands=commands.commands(record, identity, "html", profiles),
        few=FEW,
        tall=TALL,
    )


def _lines(judgement: Judgement, group: series.Group, suffix: str) -> list[Figure]:
    found = (
        curves.rates(judgement, group, f"rates{suffix}"),
        curves.latencies(judgement, group, f"latencies{suffix}"),
    )
    return [figure for figure in found if figure]


def _grade_place(judgement: Judgement, grade: Section | None) -> str:
    """Return where the section with the grade is: `first`, before the results; `last`, after them, because it
    determines nothing; or an empty string if the page has none."""
    found = [goal for case in judgement.cases for goal in goals(case)]
    if not grade and not found:
        return ""
    return "first" if (grade and grade.determined) or any(goal.reached or goal.missed for goal in found) else "last"


def _where(identity: str, one: Fact) -> str:
    return one.case if one.bundle == identity else f"{one.case} in the profile"


def _samples(judgement: Judgement, kept: samples.Kept | None) -> list[Figure]:
    return samples.figures(chosen_styles(judgement))[: 4 if kept.telemetry else 2] if kept else []
