"""Answers are called slow once several in a row are, and the seconds saved are added up."""

from scripted_chat import timed
from specchat.decoding.statistics import Statistics
from specchat.errors import StoreBusy
from specchat.tui.controllers.gains import Gains
from specchat.tui.texts.figures import Figures

DRAFTING = ("pair", "auto", "auto")


def counted(
    gains: Gains, speedup: float, paused: str | None = None, by: object = DRAFTING
) -> Figures:
    """Count an answer, and return the figures of the next one."""
    stats = Statistics(drafted=8, generated_tokens=9, step_times=timed(speedup))
    stats.draft_off_reason = paused
    gains.count(Figures(stats), by, 1.0)  # type: ignore[arg-type]
    following = Figures()
    gains.begin(following, DRAFTING)
    return following


def test_only_slow_answers_in_a_row_agree() -> None:
    """A fast one, or one that is as fast, ends the row; one that says nothing does not."""
    gains = Gains(lambda: (0.0, 0.0))
    assert counted(gains, 0.5).num_slow_before == 1
    assert counted(gains, 0.0).num_slow_before == 1
    assert counted(gains, 0.5).num_slow_before == 2
    assert counted(gains, 0.5, by=("other",)).num_slow_before == 2
    for speedup in (1.0, 2.0):
        assert counted(gains, speedup).num_slow_before == 0
        assert counted(gains, 0.5).num_slow_before == 1


def test_a_draft_model_that_is_not_used_makes_no_answer_slow() -> None:
    """It is counted apart, for the advice to leave it out."""
    gains = Gains(lambda: (0.0, 0.0))
    for number in (1, 2, 3):
        following = counted(gains, 1.0, "paused")
        assert (following.num_slow_before, following.num_paused_before) == (0, number)
    assert counted(gains, 1.0).num_paused_before == 0


def test_a_store_in_use_only_hides_the_totals() -> None:
    """They are read again for the next answer."""
    busy = [True]

    def read() -> tuple[float, float]:
        if busy[0]:
            raise StoreBusy("busy")
        return 5.0, 50.0

    gains = Gains(read)
    assert counted(gains, 2.0).saved_before == (0.0, 0.0)
    busy[0] = False
    following = Figures()
    gains.begin(following, DRAFTING)
    assert following.saved_before == (5.0, 50.0)
    assert counted(gains, 2.0).saved_before == (6.0, 51.0)
