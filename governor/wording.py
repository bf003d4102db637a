"""Holds how the numbers of a decision are written for people."""

_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def in_binary_units(amount_bytes: int, *, rounded_up: bool = False) -> str:
    """Return e.g. "0.81 GiB", "11.2 GiB", "640 KiB": three figures, cut off.

    Needs are rounded up and offers cut off, so that a need which does not fit
    never reads like the offer. A tenth of a unit is enough to use it.
    """
    for unit, size_bytes in _UNITS:
        if 10 * amount_bytes >= size_bytes:
            return f"{_three_figures(amount_bytes, size_bytes, rounded_up=rounded_up)} {unit}"
    return f"{amount_bytes} bytes"


def memory_line(needed_bytes: int, available_bytes: int, budget_bytes: int, *, of_gpu: bool = False) -> str:
    """Return e.g. "needs 1.06 GiB, 0.81 GiB free of 11.2 GiB"."""
    needed = in_binary_units(needed_bytes, rounded_up=True)
    free = f"{in_binary_units(available_bytes)} free of {in_binary_units(budget_bytes)}"
    return f"needs {needed}{_kind_of_memory(of_gpu)}, {free}"


def impossible_line(needed_bytes: int, most_bytes: int, *, of_gpu: bool = False) -> str:
    """Return e.g. "needs 65.0 GiB, this node offers at most 48.0 GiB"."""
    needed = in_binary_units(needed_bytes, rounded_up=True)
    return f"needs {needed}{_kind_of_memory(of_gpu)}, this node offers at most {in_binary_units(most_bytes)}"


def grant_line(batch: int, cpu_threads: int, needed_bytes: int, available_bytes: int) -> str:
    """Return e.g. "batch 8, 15 threads, 8.00 GiB of 8.00 GiB free"."""
    threads = "1 thread" if cpu_threads == 1 else f"{cpu_threads} threads"
    charged = in_binary_units(needed_bytes, rounded_up=True)
    return f"batch {batch}, {threads}, {charged} of {in_binary_units(available_bytes)} free"


def pressure_line(name: str, measured_percent: float, limit_percent: float) -> str:
    """Return e.g. "CPU pressure 36 % >= 20 %"."""
    return f"{name} pressure {measured_percent:g} % >= {limit_percent:g} %"


def _kind_of_memory(of_gpu: bool) -> str:  # noqa: FBT001 - a private word switch
    return " of GPU memory" if of_gpu else ""


def _three_figures(amount_bytes: int, unit_bytes: int, *, rounded_up: bool) -> str:
    for decimals in (2, 1, 0):
        scale = 10**decimals
        scaled = -(-amount_bytes * scale // unit_bytes) if rounded_up else amount_bytes * scale // unit_bytes
        if scaled < 1000:
            break
    whole, part = divmod(scaled, scale)
    return f"{whole}.{part:0{decimals}d}" if decimals else f"{whole}"
