"""The prefix cache of one engine in a simulation: beginnings that are kept while there is room, used or not."""

from app.domain.simulation_requests import NO_PREFIX, Request, SharedPrefix


class PrefixStore:
    """Which beginnings are cached, least recently used first, and how many running requests hold each."""

    def __init__(self, prefix: SharedPrefix | None, units_per_token: float) -> None:
        self.prefix, self.per_token = prefix, units_per_token
        self.units = 0.0 if prefix is None else prefix.tokens * units_per_token
        """Room of one shared beginning."""
        self.users = dict[int, int]()
        """Running requests by beginning that is cached."""
        self.pinned = 0.0
        """Room of those in use."""
        self.generation = 0
        """Times that the cache was flushed; requests that entered before hold what nobody finds."""

    def holds(self, request: Request) -> bool:
        """Whether the request would find its beginning."""
        return request.prefix in self.users

    def found(self, request: Request) -> float:
        """Prompt tokens that are not computed again [tokens]."""
        if self.prefix is None or request.prefix not in self.users:
            return 0.0
        return self.prefix.cached_tokens(request.input_tokens)

    def found_once(self, request: Request) -> float:
        """Of them, those that the request does not hold itself [tokens]."""
        if self.prefix is None or not self.units or request.prefix not in self.users:
            return 0.0
        return self.prefix.shared_tokens(request.input_tokens)

    def pinned_with(self, request: Request) -> float:
        """Room of the beginnings in use once this request runs, too."""
        return self.pinned + self.units if self.users.get(request.prefix) == 0 else self.pinned

    def beyond(self, request: Request) -> float:
        """Room of a cached beginning that is longer than the prompt."""
        return 0.0 if request.prefix == NO_PREFIX else max(0.0, self.units - request.input_tokens * self.per_token)

    def enter(self, request: Request) -> None:
        """The request runs and uses its beginning where that is cached."""
        which = request.prefix
        if which not in self.users:
            return
        count = self.users.pop(which)
        self.users[which] = count + 1
        request.prefix_generation = self.generation
        if not count:
            self.pinned += self.units

    def keep(self, request: Request) -> float:
        """The prompt was computed and its beginning is cached now; returns the room that the request does not hold itself any more.

        Where another one was faster, the request keeps a copy of its own.
        """
        if self.prefix is None or request.prefix in self.users:
            return 0.0
        self.users[request.prefix] = 1
        request.prefix_generation = self.generation
        self.pinned += self.units
        return self.prefix.shared_tokens(request.input_tokens) * self.per_token

    def leave(self, request: Request) -> None:
        """The request gave its place up."""
        if request.prefix_generation == self.generation:
            self.users[request.prefix] -= 1
            if not self.users[request.prefix]:
                self.pinned -= self.units
        request.prefix_generation = None

    def shrink(self, room: float) -> None:
        """Drop beginnings that nobody uses, those longest not used first, until all of them take up at most `room`."""
        if not self.units or len(self.users) * self.units <= room:
            return
        for which in [which for which, count in self.users.items() if not count]:
            if len(self.users) * self.units <= room:
                return
            del self.users[which]

    def flush(self) -> None:
        """Forget what is cached; the room of beginnings in use counts as free at once."""
        self.users, self.pinned, self.generation = {}, 0.0, self.generation + 1
