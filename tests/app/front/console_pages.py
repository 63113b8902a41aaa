"""Each page of the console, and which of three users gets it, for tests in a browser."""

NOBODY, SOME, ALL = "bob", "alice", "root"  # Alice reads clicks, its group, and the file of clicks.
OF_CLICKS = [
    "/topics/clicks",
    "/topics/clicks/messages",
    "/topics/clicks/messages/0/0",
    "/topics/clicks/messages/0/0/value",
    "/groups/one?group=of-clicks",
    "/files?in=topics/kafka/clicks/",
    "/files/one?key=docs/clicks",
]
PAGES = {  # Who gets it.
    **dict.fromkeys(["/", "/topics", "/groups", "/sessions"], (NOBODY, SOME, ALL)),
    **dict.fromkeys(OF_CLICKS, (SOME, ALL)),
    **{path.replace("clicks", "wages"): (ALL,) for path in OF_CLICKS},
    **dict.fromkeys(["/files", "/settings", "/users", "/rules", "/denied"], (ALL,)),
    **dict.fromkeys(["/console/rates", "/console/lag?group=of-clicks"], (ALL,)),
    "/rules?operation=READ&kind=topic&name=clicks": (ALL,),
}
"""Those that show a record's value, or numbers, are no pages that a browser opens: its scripts and
links fetch them (`is_fetched`)."""


def is_fetched(path: str) -> bool:
    """Whether a page's script or link fetches it."""
    return path.startswith("/console/") or path.endswith("/value")
