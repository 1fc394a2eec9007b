"""The task `score`: documents are rated by tiers of models, and the rubric's thresholds decide."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from judgekit import authors
from judgekit.errors import GatewayError
from judgekit.fence import Fence
from judgekit.judging import jury, outgoing
from judgekit.judging.calls import all_of
from judgekit.judging.course import Course
from judgekit.judging.escalation import UNDETERMINED, Final
from judgekit.judging.gates import margin
from judgekit.judging.independence import is_independent, lacking
from judgekit.judging.judge import Judge
from judgekit.judging.readings import WORDS
from judgekit.judging.record import Judged, unsettled, verdict
from judgekit.judging.scoring import Rating
from judgekit.judging.session import Stopwatch
from judgekit.judging.subject import is_cut
from judgekit.prompt import Earlier
from judgekit.rubric import ScoreRubric

if TYPE_CHECKING:
    from judgekit.gateway.base import Endpoint, Message
    from judgekit.judging.session import Session
    from judgekit.judging.subject import Document
    from judgekit.names import TierName
    from judgekit.verdict import Verdict


class Elsewhere(Protocol):
    """Another program that judges documents in our stead."""

    async def judge(self, judge: DocumentJudge, document: Document) -> Verdict:
        """Return the verdict under the judge's rubric, mode and limits; what failed is in it."""
        ...


@dataclass(frozen=True, slots=True)
class DocumentJudge(Judge[ScoreRubric]):
    """Judges documents. Where they are judged `elsewhere`, no model is asked from here.

    Where scores are `compared` with those of other documents, they are taken as models first gave them.
    """

    elsewhere: Elsewhere | None = None
    compared: bool = False

    @property
    def can_judge(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self.seats) or self.elsewhere is not None

    async def judge(self, document: Document) -> Verdict:
        """Return the verdict on a document; what failed on the way is in it, never raised."""
        wrote = self._wrote(document)
        document = replace(document, author=replace(document.author, family=authors.listed(wrote)))
        # In a thread: it may ask local servers, or a proxy, of whom they are.
        judge = await asyncio.to_thread(self.facing, document) if wrote and self.seats else self
        return await DocumentJudge._judge(judge, document)

    def facing(self, document: Document) -> DocumentJudge:
        """Return the judge without models of the families that wrote a document, where others are there."""
        return self.apart_from(self._wrote(document))

    def _wrote(self, document: Document) -> tuple[str, ...]:
        """Return the families that wrote a document, as far as it or the configuration says."""
        said = (*authors.named(document.author.family), *authors.named(self.written_by))
        return tuple(dict.fromkeys(said))

    async def _judge(self, document: Document) -> Verdict:
        watch, session = Stopwatch(), self.session()
        try:
            document, left_out = await session.aside(partial(self._outgoing, document), document.size)
        except GatewayError as error:
            nobody = f"{error.kind} ({error.message})"
            late = Judged(document, self.loaded, self.mode, UNDETERMINED, Course(), (), nobody)
            return verdict(late, watch.ms)
        refusal = self.manner.refusal(left_out)
        if self.elsewhere is not None and not refusal:
            found = await self.elsewhere.judge(self, document)
            found = found.model_copy(update={"redacted": left_out + found.redacted})
            accepted = found.verdict == "accept" and not found.independent and not found.human_override
            why = lacking(self.independence, self._wrote(document), ()) if accepted else None
            return unsettled(found, why) if why else found
        cut = {tier for tier in self.seats if self._is_cut(tier, document)}
        rules = self.rules(cut, self.manner.margin)
        course = Course()
        missing = refusal or document.lacks(self.rubric)
        step = rules.next({}) if self.seats and not missing else UNDETERMINED
        while not isinstance(step, Final):
            await self._ask(step, document, course, session)
            known = {tier: each for tier, each in course.opinions.items() if each}
            step = rules.next(
                {tier: each.outcome if each else None for tier, each in course.opinions.items()},
                self._margins(course),
                {tier: each.divided for tier, each in known.items() if each.divided is not None},
            )
        calibration = self.gates.id if self.gates else None
        nobody = missing or self.nobody
        wrote = self._wrote(document)
        judged = Judged(
            document,
            self.loaded,
            self.mode,
            step,
            course,
            cut,
            nobody,
            calibration,
            "; ".join(filter(None, (self.stale, self._unread(course)))) or None,
            is_independent(wrote, course.families(step)),
        )
        found = verdict(judged, watch.ms)
        if not found.rounds:
            return found
        if self.manner.redact:
            found = outgoing.replies(found)
        asked = self.asked_instead(course.opinions)
        found = found.model_copy(update={"redacted": left_out, "substitutes": asked})
        why = lacking(self.independence, wrote, course.families(step)) if step.verdict == "accept" else None
        return unsettled(found, why) if why else found

    def prompts(
        self, tier: TierName, document: Document, seat: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: one prompt or several.

        Of several models that sit there `seat` is the one that is meant, the first where none is given.
        """
        document, left_out = self._outgoing(document)
        if self.manner.refusal(left_out):
            return []
        first = seat or next(iter(self.juries.get(tier, ())), None)
        return self._rating(tier, document, Course()).prompts(first, Fence())

    def _margins(self, course: Course) -> dict[TierName, float]:
        """Return how far opinions are from another outcome, but for those that no gate may let through."""
        return {
            tier: margin(self.rubric, each.scores, self.mode)
            for tier, each in course.opinions.items()
            if each and (self.gates is None or self.gates.knows(tier, course.read(tier)))
        }

    def _unread(self, course: Course) -> str | None:
        """Say in one line whose opinions could not be read as those that a calibration was learned from."""
        unread = [tier for tier in course.opinions if tier not in self._margins(course)]
        said = [tier for tier in unread if course.opinions[tier] and tier != list(self.seats)[-1]]
        if self.gates is None or not said:
            return None
        how = " and ".join(sorted({WORDS[how] for tier in said for _, how in course.read(tier)}))
        return f"calibration {self.gates.id} says nothing of {', '.join(said)}: what it said was {how}"

    def _outgoing(self, document: Document) -> tuple[Document, int]:
        return outgoing.document(document) if self.manner.redact else (document, 0)

    def _is_cut(self, tier: TierName, document: Document) -> bool:
        """Whether any model of a tier does not see the whole document."""
        rating = self._rating(tier, document, Course())
        return any(is_cut(rating.seen_by(seat)) for seat in self.juries[tier])

    def _rating(self, tier: TierName, document: Document, course: Course) -> Rating:
        asked = Rating(self.rubric, self.mode, document, tier, self.manner, tier, compared=self.compared)
        if tier != "tiebreaker":
            return asked
        # In which order a jury's models are named plays no part.
        voices = sorted(
            course.voices, key=lambda each: (list(course.opinions).index(each.tier), each.seat.model)
        )
        told = [Earlier(each.scores, outgoing.words(each.reasoning)) for _, _, each in voices]
        # Shuffled by the subject: the tiebreaker cannot learn whose opinion stands first.
        random.Random(document.sha256).shuffle(told)  # noqa: S311 - an order, not a secret
        # Where nobody disagrees the tiebreaker stands in for the deep tier, and is told what that is told.
        words: TierName = tier if course.disagrees() else "deep"
        return replace(asked, words=words, told=told)

    async def _ask(self, tier: TierName, document: Document, course: Course, session: Session) -> None:
        """Ask every model of a tier, and note in `course` what each says and what it comes to."""
        seats = self.juries[tier]
        rating = self._rating(tier, document, course)
        answers = await all_of([partial(rating.ask, seat, session) for seat in seats], session)
        said = [(seat, each.value) for seat, each in zip(seats, answers, strict=True) if each.value]
        enough = jury.has_quorum(len(said), len(seats))
        decide = partial(self.rubric.decide, mode=self.mode)
        course.note(tier, seats, answers, jury.opinion(said, self.manner.jury, decide) if enough else None)
