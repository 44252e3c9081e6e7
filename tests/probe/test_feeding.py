"""Which loaders feed the training, told by the order of their batches and of backward passes."""

from __future__ import annotations

import pytest

from torchtop.probe.feeding import Feeding, Known, Source


class Loop:
    """A loop over loaders, written as they are asked.

    ``A`` fetches a batch of loader A, ``A.`` finds that it has no more, ``A!`` begins a pass over
    it (as the first batch does), ``A-`` drops its iterator, and ``|`` is a backward pass.
    """

    def __init__(self) -> None:
        self.feeding = Feeding()
        self.loaders: dict[str, Known] = {}
        self.sources: dict[str, Source] = {}
        self.gone: set[Source] = set()
        self.asked: Source | None = None

    def play(self, text: str, elsewhere: bool = False) -> list[str]:
        """What each backward pass told: by whom it was fed, and by whom not, as ``A/E``."""
        told = []
        for word in text.split():
            name, mark = word[0], word[1:]
            if name == "|":
                told.append(self._backward(elsewhere))
            elif mark == ".":
                self.feeding.ended(self.sources[name])
            elif mark == "-":
                self.gone.add(self.sources[name])
            else:
                self._fetch(name, new=mark == "!")
        return told

    def _fetch(self, name: str, new: bool) -> None:
        source = self.sources.get(name)
        if source is None or new:
            loader = self.loaders.setdefault(name, Known(len(self.loaders)))
            source = self.sources[name] = Source(loader, lambda: None)
            made = source
            source.alive = lambda: None if made in self.gone else made
        if source is not self.asked:
            self.feeding.turn(source)
        self.asked = source
        source.fetched += 1

    def _backward(self, elsewhere: bool) -> str:
        if not self.feeding.unclear:
            return "="
        fed = self.feeding.backward(elsewhere)
        if fed is None:
            return "-"
        for source in fed.by:
            source.loader.passes += 1
        names = {loader: name for name, loader in self.loaders.items()}
        by, not_by = (sorted(names[s.loader] for s in each) for each in (fed.by, fed.not_by))
        return "".join(by) + "/" + "".join(not_by) + ("" if fed.drives else "?")


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        pytest.param("A | A | A | A. A! | A |", "A/ = = A/ =", id="one loader"),
        pytest.param("A | A | A. E E E. A! | A |", "A/ = A/E =", id="evaluation after an epoch"),
        pytest.param("A | A | E E E. A | A |", "A/ = A/E =", id="evaluation within an epoch"),
        pytest.param("A | A | E E E E- A | A |", "A/ = A/E =", id="evaluation in part"),
        pytest.param("A A | | E E E. A A | |", "A/ = A/E =", id="accumulation, fetched up front"),
        pytest.param("A A | A | A. | E E. A! A |", "A/ = A/ A/E", id="one batch ahead"),
        pytest.param("A A | A | E E E. A. |", "A/ = A/E", id="evaluation before the last batch"),
        pytest.param("A | A E E E. |", "A/ A/E", id="evaluation with the next batch at hand"),
        pytest.param("A B | A B | A B | A. B. A! B! |", "AB/ AB/ AB/ AB/", id="two loaders"),
        pytest.param("A B B | A B B | A B B |", "AB/ AB/ AB/", id="two batches of the second"),
        pytest.param("B B A | B B A | B B A |", "A/B AB/ AB/", id="two batches of the first"),
        pytest.param("A B | A B | E E E. A B |", "AB/ AB/ AB/E", id="two, and evaluation"),
        pytest.param("A A- | A! A- | A! A- |", "A/ A/ A/", id="an iterator for each batch"),
        pytest.param("A A A. | | | | E E. | |", "A/? = = = /E? =", id="batches that are kept"),
        pytest.param("A | | | E E E. | | A |", "A/ = = A/E = A/", id="several updates a batch"),
    ],
)
def test_a_backward_tells_what_the_batches_before_it_were_for(loop: str, told: str) -> None:
    assert Loop().play(loop) == told.split()


def test_evaluation_beside_batches_of_another_thread_feeds_nothing() -> None:
    loop = Loop()

    assert loop.play("| | E E E. | | E! E E. |", elsewhere=True) == ["-", "=", "/E?", "=", "/E?"]


def test_workers_that_are_kept_serve_one_pass_after_the_other() -> None:
    loop = Loop()
    loop.play("A | A A.")
    source = loop.sources["A"]
    assert (source.place, source.over) == (2, True)

    source.begin_pass()
    loop.feeding.turn(source)
    loop.asked = source

    assert loop.play("A | A |") == ["A/", "="]
    assert (source.place, source.over) == (2, False)
