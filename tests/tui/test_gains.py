"""Answers without the draft model are counted, and the seconds saved are added up."""

from specchat.decoding.statistics import Statistics
from specchat.errors import StoreBusy
from specchat.tui.controllers.gains import Gains
from specchat.tui.texts.figures import Figures

DRAFTING = ("pair", "auto", "auto")


def counted(gains: Gains, paused: str | None = None) -> Figures:
    """Count an answer, and return the figures of the next one."""
    stats = Statistics(drafted=8, generated_tokens=9, draft_off_reason=paused)
    gains.count(Figures(stats), DRAFTING, 1.0)
    following = Figures()
    gains.begin(following, DRAFTING)
    return following


def test_answers_that_did_not_use_the_draft_model_are_counted() -> None:
    """In a row, for the advice to leave it out."""
    gains = Gains(lambda: (0.0, 0.0))
    for number in (1, 2, 3):
        following = counted(gains, "paused")
        assert following.num_paused_before == number
    assert counted(gains).num_paused_before == 0


def test_a_store_in_use_only_hides_the_totals() -> None:
    """They are read again for the next answer."""
    busy = [True]

    def read() -> tuple[float, float]:
        if busy[0]:
            raise StoreBusy("busy")
        return 5.0, 50.0

    gains = Gains(read)
    assert counted(gains).saved_before == (0.0, 0.0)
    busy[0] = False
    following = Figures()
    gains.begin(following, DRAFTING)
    assert following.saved_before == (5.0, 50.0)
    assert counted(gains).saved_before == (6.0, 51.0)
