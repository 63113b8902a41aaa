"""A column of words in place of an array, for tests that count accesses."""


class OneAtATime(dict[int, int]):
    """A column of words of which only single ones are read and written; all are counted."""

    touched = 0

    def __setitem__(self, slot: int, word: int) -> None:
        self.touched += 1
        super().__setitem__(slot, word)
