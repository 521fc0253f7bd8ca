import pytest

from .folders import save_student


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Gives the folder of a model by head, family, recipe and config; each is made once."""
    made = {}

    def folder(head="ForSequenceClassification", family="Bert", recipe="default", **changes):
        key = (head, family, recipe, repr(changes))
        if key not in made:
            made[key] = save_student(tmp_path_factory.mktemp("packed") / "model", head, family, recipe, **changes)
        return made[key]

    return folder
