"""What a report says of comings, goings and drifts."""

from covey.report.changes import change_rows


def test_comings_goings_and_drifts_are_told_in_the_order_of_their_rounds() -> None:
    devices = {
        "joins": [{"clients": [10, 11], "round": 4, "labels": False}, {"clients": [5], "round": 6}],
        "leaves": [{"clients": [5], "round": 3}],
        "drifts": [
            {
                "clients": [0, 1],
                "round": 3,
                "label_offset": 1,
                "course": "gradual",
                "rounds": 3,
                "stagger": 2,
            },
            {
                "clients": 2,
                "round": 2,
                "images": ["noise"],
                "strength": 0.8,
                "course": "recurring",
                "rounds": 2,
            },
            {"clients": [3], "round": 5, "mix_of": 4, "rotations": 1},
        ],
    }
    assert change_rows(devices) == [
        ["2", "2", "drift: noise at strength 0.8, on and off for 2 rounds each"],
        ["3", "5", "leave"],
        ["3", "0, 1", "drift: labels moved by 1, gradually over 3 rounds, each next client 2 rounds later"],
        ["4", "10, 11", "join without labels"],
        ["5", "3", "drift: images rotated by 1 quarter turns and the label mix of client 4, at once"],
        ["6", "5", "join"],
    ]
    assert change_rows({"profile": "ideal", "joins": []}) == []
