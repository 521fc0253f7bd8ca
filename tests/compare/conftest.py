from tests.distill.conftest import data, teacher

__all__ = ["data", "teacher"]
