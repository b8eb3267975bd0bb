"""Places in a JSON document (RFC 6901): how refusals and differences name a field."""


def json_pointer(*path: str | int) -> str:
    """The pointer to a path of names and indices; empty for the whole document (RFC 6901 section 3).

    >>> json_pointer("errors", 0, "a/b~c")
    '/errors/0/a~1b~0c'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
