"""A fixture for pytest."""
import pytest


@pytest.fixture
def assert_fits():
    """`def test_it(assert_fits): assert_fits("rtx-4090", model, batch, optimizer)`"""
    from . import assert_fits as check

    return check
