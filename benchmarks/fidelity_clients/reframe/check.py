import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Ranks(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    executable = "printenv"
    executable_opts = ["SLURM_PROCID"]
    num_tasks = 4
    num_tasks_per_node = 2
    time_limit = "5m"

    @sanity_function
    def seen(self):
        return sn.assert_eq(sn.count(sn.extractall("^[0-3]$", self.stdout)), 4)


@rfm.simple_test
class Fails(Ranks):
    executable = "false"


@rfm.simple_test
class Late(Ranks):
    executable = "sleep"
    executable_opts = ["1;", "seq 0 3"]
    num_tasks = num_tasks_per_node = 1
    prerun_cmds = ["module() { true; }", "module load x"]
