"""The failure of a lake table; apart from `table`, which imports pyarrow, unlike the supervisor."""

from smq.model.errors import StoreError


class LakeError(StoreError):
    """A table or its catalog cannot be used; the message says why and what to do."""
