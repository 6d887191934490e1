from functions import executor, fail

error = executor().submit(fail).exception()
print(type(error).__name__, "on purpose" in str(error))
