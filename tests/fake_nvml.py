"""Holds a stand-in for ``pynvml`` with cards of a test's choice; the real one needs NVIDIA's driver."""

from types import ModuleType, SimpleNamespace


class NVMLError(Exception):
    """The root of what pynvml raises."""


class FakeNvml(ModuleType):
    """Knows cards by PCI address: (total, used) in bytes, which a test may change."""

    NVMLError = NVMLError

    def __init__(self, cards: dict[str, tuple[int, int]], *, has_driver: bool = True) -> None:
        super().__init__("pynvml")
        self.cards = cards
        self.has_driver = has_driver
        self.asked: list[str] = []

    def nvmlInit(self) -> None:  # noqa: N802 - pynvml's name
        """Load the driver's library."""
        if not self.has_driver:
            raise NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetHandleByPciBusId(self, address: str) -> str:  # noqa: N802 - pynvml's name
        """Return the handle of a card: its address."""
        if address not in self.cards:
            raise NVMLError("Not Found")
        return address

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802 - pynvml's name
        """Return total and used."""
        self.asked.append(handle)
        if handle not in self.cards:
            raise NVMLError("GPU is lost")
        total, used = self.cards[handle]
        return SimpleNamespace(total=total, used=used, free=total - used)
