"""What holds for all tests: no property test is timed, for machines are slow when they are busy."""

from hypothesis import HealthCheck, settings

settings.register_profile("smq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("smq")
