"""GPUs and the host: a sampler process, and facts asked once.

Importing this package, or any module in it, loads neither torch nor textual. Only `nvml` touches
the driver's library, and only the sampler and the child of `facts.query_gpus` call it: a driver
call can hang for ever.
"""
