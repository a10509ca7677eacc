"""What a secure sum costs one client and the server: `python -m benchmarks.secure_sums` (needs Flower).

CPU seconds of Shamir's shares and bytes of one client, with all others as neighbours and with as many as are safe. The
complete graph of more than 200 clients is not run: its shares grow with threshold times neighbours, and what the server
does for each client with the square of the threshold; both are scaled up from 200.
"""

from __future__ import annotations

import math
import os
import time

from covey.privacy.neighbours import neighbours_for
from covey.privacy.secure import stays
from covey.privacy.secure_steps import primitives

ROW = 61_706  # numbers of LeNet-5
MOST = 200


def seconds(work: object, *args: object) -> tuple[float, object]:
    """CPU seconds, and what came out."""
    start = time.process_time()
    found = work(*args)  # type: ignore[operator]
    return time.process_time() - start, found


def cost(neighbours: int, threshold: int) -> tuple[float, float, int]:
    """CPU seconds of a client and of the server for one client, and the client's bytes beside its row."""
    flower = primitives()
    secret, public = (
        convert(key)
        for key, convert in zip(
            flower["generate_key_pairs"](),
            (flower["private_key_to_bytes"], flower["public_key_to_bytes"]),
            strict=True,
        )
    )
    shares, own = neighbours + 1, os.urandom(32)
    for_key, keys = seconds(flower["create_shares"], secret, threshold, shares)
    for_seed, seeds = seconds(flower["create_shares"], own, threshold, shares)
    combined, again = seconds(flower["combine_shares"], seeds[:threshold])  # type: ignore[index]
    assert again == own
    plain = flower["share_keys_plaintext_concat"](1, 2, seeds[0], keys[0])  # type: ignore[index]
    letter = len(flower["encrypt"](flower["generate_shared_key"](*flower["generate_key_pairs"]()), plain))
    told = neighbours * (2 * len(public) + 2 * letter + 2 * 64 + len(seeds[0]))  # 64: commitments  # type: ignore[index]
    return for_key + for_seed, combined, told


def main() -> None:
    print(f"beside a row of {ROW * 4 / 1e3:.0f} kB")
    print(f"{'clients':>8} {'neighbours':>10} {'client s':>9} {'server s':>9} {'client kB':>9}")
    for clients in (50, 200, 1000):
        for neighbours in sorted({neighbours_for(clients), clients - 1}):
            whole = neighbours == clients - 1
            threshold = stays(clients, 0.67) if whole else neighbours // 2 + 2
            tried = min(neighbours, MOST - 1)
            share = stays(MOST, 0.67) if tried < neighbours else threshold
            client, server, told = cost(tried, share)
            grown = neighbours / tried
            client, server = client * grown * threshold / share, clients * server * (threshold / share) ** 2
            kilobytes = math.ceil(told * grown / 1e3)
            about = "  (scaled up)" if grown > 1 else ""
            print(f"{clients:>8} {neighbours:>10} {client:>9.2f} {server:>9.0f} {kilobytes:>9}{about}")


if __name__ == "__main__":
    main()
