site_configuration = {
    "systems": [
        {
            "name": "here",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "p",
                    "scheduler": "squeue",
                    "launcher": "srun",
                    "access": ["-p standard"],
                    "environs": ["builtin"],
                }
            ],
        }
    ],
    "environments": [{"name": "builtin"}],
}
