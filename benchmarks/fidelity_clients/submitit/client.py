from functions import add, executor

print(executor().submit(add, 1, 2).result())
