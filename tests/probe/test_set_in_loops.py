"""What a loop sets of its data is told by whose it is, in the code of loops that never ran."""

from advisor.probe import item_making, set_in_loops


class Meter:
    def update(self, value):
        self.paths = value


class Data:
    """A dataset of many samples, with a method of the meter's name."""

    def __init__(self):
        self.paths = [(f"item {index}", index) for index in range(48)]
        self.level = {"now": 0.0}

    def update(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return self.paths[index][1] * self.level["now"]


def told(data):
    """Names that the loop of the caller sets, which is about to take its first item."""
    state = item_making.settable({"dataset": data})
    yield set_in_loops.inside(state)


def test_a_method_of_another_object_sets_nothing_of_the_data() -> None:
    """Lists of plain samples are data, whose parts no loop could hold."""
    data, meter = Data(), Meter()
    for names in told(data):
        assert names == set()
        if not data:
            meter.update(3)


def test_the_datas_own_method_and_its_dictionary_are_told() -> None:
    data = Data()
    level = data.level
    for names in told(data):
        assert names == {"update", "paths", "level"}
        if not data:
            data.update([])
            level["now"] = 1.0


def test_a_function_that_the_loop_calls_is_followed() -> None:
    data = Data()
    for names in told(data):
        assert names == {"level"}
        if not data:
            raised(data)


def raised(given):
    given.level["now"] += 1.0


def test_an_object_that_cannot_be_told_is_taken_by_its_name() -> None:
    data = Data()
    for names in told(data):
        assert names == {"update"}
        for each in [data] if not data else []:
            each.update([])
