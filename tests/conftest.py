from hypothesis import settings

# A loaded machine is no failure: nothing here is asserted about time.
settings.register_profile("forkpoint", deadline=None)
settings.load_profile("forkpoint")
