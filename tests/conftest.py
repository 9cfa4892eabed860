"""What holds for every test: a busy machine is no failure of a property test.

The profile `first` takes the first example that fails: for tests/mutants.py.
"""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("first", settings.get_profile("shared"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("shared")
