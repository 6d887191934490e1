"""Lines of scripts that will not do what they seem to, with what is said of them, and lines of
which there is nothing to say."""

from __future__ import annotations

TO_SAY = [
    # text behind the first line, words, what is said
    (
        " #SBATCH -N2",
        (),
        [
            "2: is indented, so sbatch takes it for a comment; write #SBATCH -N2 at the"
            " start of the line",
        ],
    ),
    (
        "\t#SBATCH --mem=4G --time=10",
        (),
        [
            "2: is indented, so sbatch takes it for a comment; write #SBATCH --mem=4G "
            "--time=10 at the start of the line",
        ],
    ),
    (
        "# SBATCH -N2",
        (),
        [
            "2: has something between # and SBATCH, so sbatch takes it for a comment; "
            "write #SBATCH -N2 at the start of the line",
        ],
    ),
    (
        "#\tSBATCH -N2",
        (),
        [
            "2: has something between # and SBATCH, so sbatch takes it for a comment; "
            "write #SBATCH -N2 at the start of the line",
        ],
    ),
    (
        "#!SBATCH -N2",
        (),
        [
            "2: has something between # and SBATCH, so sbatch takes it for a comment; "
            "write #SBATCH -N2 at the start of the line",
        ],
    ),
    (
        "# SBTRAIN --train-steps=4",
        (),
        [
            "2: has something between # and SBTRAIN, so sbtrain takes it for a comment;"
            " write #SBTRAIN --train-steps=4 at the start of the line",
        ],
    ),
    (
        "#sbatch -N2",
        (),
        [
            "2: is no directive, because #sbatch is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#Sbatch -N2",
        (),
        [
            "2: is no directive, because #Sbatch is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#SBTACH -N2",
        (),
        [
            "2: is no directive, because #SBTACH is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#SBACTH -N2",
        (),
        [
            "2: is no directive, because #SBACTH is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#SBATH -N2",
        (),
        [
            "2: is no directive, because #SBATH is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#SBTCH -N2",
        (),
        [
            "2: is no directive, because #SBTCH is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#SABTCH -N2",
        (),
        [
            "2: is no directive, because #SABTCH is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#BATCH -N2",
        (),
        [
            "2: is no directive, because #BATCH is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#SBBATCH -N2",
        (),
        [
            "2: is no directive, because #SBBATCH is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#SLBATCH -N2",
        (),
        [
            "2: is no directive, because #SLBATCH is not #SBATCH; write #SBATCH -N2 at "
            "the start of the line",
        ],
    ),
    (
        "#SBTRIAN --train-steps=4",
        (),
        [
            "2: is no directive, because #SBTRIAN is not #SBTRAIN; write #SBTRAIN "
            "--train-steps=4 at the start of the line",
        ],
    ),
    (
        "#$ -pe mpi 4",
        (),
        [
            "2: is a line for Grid Engine, which sbatch does not read; write #SBATCH options",
        ],
    ),
    (
        "set -e\n#SBATCH -N2",
        (),
        [
            "3: ignored by sbatch, because line 2 is a command: #SBATCH -N2; move it "
            "above line 2",
        ],
    ),
    (
        "#PBS -r n",
        (),
        [
            "2: #PBS -r does nothing under sbatch; write #SBATCH --requeue or --no-requeue",
        ],
    ),
    (
        "#PBS -l nodes=2:ppn=2,pmem=1gb",
        (),
        [
            "2: #PBS -l pmem does nothing under sbatch; write #SBATCH --mem-per-cpu=M",
        ],
    ),
    (
        "#PBS -l walltime=3600",
        (),
        [
            "2: walltime=3600 is minutes for sbatch, and seconds for PBS; write #SBATCH"
            " --time=01:00:00",
        ],
    ),
    (
        "#BSUB -W 1:30",
        (),
        [
            "2: -W 1:30 is minutes and seconds for sbatch, and hours and minutes for "
            "LSF; write #SBATCH --time=01:30:00",
        ],
    ),
    (
        "#BSUB -J fit[1-8]",
        (),
        [
            "2: -J fit[1-8] makes no array under sbatch; write #SBATCH --array=1-8 "
            "--job-name=fit",
        ],
    ),
    (
        "#PBS -q long\n#BSUB -n 4",
        (),
        [
            "2: is not read, because line 3 is a #BSUB line and sbatch reads one of the"
            " two kinds; write #SBATCH options",
        ],
    ),
    (
        "#SBATCH -o logs/%j.out",
        (),
        [
            "2: the log folder logs is missing, and without it the job ends before its "
            "first line; mkdir -p logs",
        ],
    ),
    (
        "#SBATCH -o out.txt\n#SBATCH --error='a b/c/%x.err'",
        (),
        [
            "3: the log folder a b/c is missing, and without it the job ends before its"
            " first line; mkdir -p 'a b/c'",
        ],
    ),
    (
        "#SBATCH -o /no/where/%A_%a.log",
        (),
        [
            "2: the log folder /no/where is missing, and without it the job ends before"
            " its first line; mkdir -p /no/where",
        ],
    ),
    (
        "#SBATCH -J fit -o %x/out",
        (),
        [
            "2: the log folder fit is missing, and without it the job ends before its "
            "first line; mkdir -p fit",
        ],
    ),
    (
        "#SBATCH -o here/%j/out",
        (),
        [
            "2: the log folder here/%j is named by what the job is given when it runs, "
            "and Slurm makes no folders; put %j into the file's name",
        ],
    ),
    (
        "#SBATCH -o here/",
        (),
        [
            "2: --output=here/ is a folder, and the job ends before its first line; "
            "write --output=here/slurm-%j.out",
        ],
    ),
    (
        "#SBATCH -o here",
        (),
        [
            "2: --output=here is a folder, and the job ends before its first line; "
            "write --output=here/slurm-%j.out",
        ],
    ),
    (
        "#SBATCH -o ~/logs/%j",
        (),
        [
            "2: --output=~/logs/%j is taken as written, because sbatch expands neither "
            "~ nor variables, and there is no such folder; write the path in full, %u "
            "for your name",
        ],
    ),
    (
        "#SBATCH -o /scratch/$USER/%j",
        (),
        [
            "2: --output=/scratch/$USER/%j is taken as written, because sbatch expands "
            "neither ~ nor variables, and there is no such folder; write the path in "
            "full, %u for your name",
        ],
    ),
    (
        "",
        (
            "-o",
            "logs/x",
        ),
        [
            "command line: the log folder logs is missing, and without it the job ends "
            "before its first line; mkdir -p logs",
        ],
    ),
    (
        "#SBATCH -D gone",
        (),
        [
            "2: the folder gone is missing; mkdir -p it, or leave --chdir out",
        ],
    ),
    (
        "#SBATCH -D here -o logs/x",
        (),
        [
            "2: the log folder logs is missing, and without it the job ends before its "
            "first line; mkdir -p logs",
        ],
    ),
    (
        "#SBATCH -a 1-3 -o out.txt",
        (),
        [
            "2: the tasks of the array write out.txt over each other; "
            "--output=out-%a.txt gives each its own",
        ],
    ),
    (
        "#SBATCH -a 1,2%1 -o %A",
        (),
        [
            "2: the tasks of the array write %A over each other; --output=%A-%a gives "
            "each its own",
        ],
    ),
    (
        "#SBATCH --exclusive\n#SBATCH --oversubscribe",
        (),
        [
            "3: --oversubscribe overrules --exclusive of job.sh:2; leave one of them out",
        ],
    ),
    (
        "#SBATCH -s --exclusive",
        (),
        [
            "2: --exclusive overrules --oversubscribe; leave one of them out",
        ],
    ),
    (
        "#SBATCH --requeue\n#SBATCH --no-requeue",
        (),
        [
            "3: --no-requeue overrules --requeue of job.sh:2; leave one of them out",
        ],
    ),
    (
        "#SBATCH -N2\n#SBATCH -t 10\n#SBATCH --nodes=4",
        (),
        [
            "4: --nodes=4 overrules --nodes=2 of job.sh:2; leave one of them out",
        ],
    ),
    (
        "",
        (
            "-N2",
            "-N4",
        ),
        [
            "command line: --nodes=4 overrules --nodes=2; leave one of them out",
        ],
    ),
    (
        "#SBATCH --gres=gpu:1\n#SBATCH --gpus-per-node=2",
        (),
        [
            "2: --gres=gpu:1 overrules --gpus-per-node=2 of job.sh:3; leave one of them out",
        ],
    ),
    (
        "#SBATCH -N2 --ntasks-per-node=4\n#SBATCH -n2",
        (),
        [
            "3: --ntasks=2 counts, so that the job has 2 tasks and not 8, as --nodes=2 "
            "and --ntasks-per-node=4 would give; leave --ntasks out, or make it 8",
        ],
    ),
    (
        "#SBATCH --ntasks-per-gpu=2 -G1 -n4",
        (),
        [
            "2: --ntasks=4 does not count, so that the job has 2 tasks, 2 for each of "
            "its GPUs; leave --ntasks out, or --ntasks-per-gpu",
        ],
    ),
    (
        "#SBATCH -c8\nmodule load x\nsrun -n4 python train.py",
        (),
        [
            "4: srun counts 1 CPU a task, because on Slurm 22.05 it does not take "
            "--cpus-per-task=8 from the job; write srun "
            "--cpus-per-task=$SLURM_CPUS_PER_TASK, or export SRUN_CPUS_PER_TASK=8",
        ],
    ),
    (
        "srun python train.py -c config.yaml",
        ("-c8",),
        [
            "2: srun counts 1 CPU a task, because on Slurm 22.05 it does not take "
            "--cpus-per-task=8 from the job; write srun "
            "--cpus-per-task=$SLURM_CPUS_PER_TASK, or export SRUN_CPUS_PER_TASK=8",
        ],
    ),
    (
        "#SBATCH -t 1 --signal=B:USR1@90",
        (),
        [
            "2: --signal=B:USR1@90 comes at the start, because the limit is 60 s; write"
            " --signal=B:USR1@15, or give more --time",
        ],
    ),
    (
        "#SBATCH --signal=SIGUSR1@120\nsave() { :; }\ntrap save USR1\nsrun x & wait",
        (),
        [
            "2: --signal=SIGUSR1@120 reaches the job's steps alone, and the trap on "
            "line 4 waits for it in the script itself; write --signal=B:USR1@120",
        ],
    ),
    (
        "#SBATCH --signal=10\ntrap 'touch x' TERM SIGUSR1\nsrun x & wait",
        (),
        [
            "2: --signal=10 reaches the job's steps alone, and the trap on line 3 waits"
            " for it in the script itself; write --signal=B:10@60",
        ],
    ),
]
NOTHING_TO_SAY = [
    ("##SBATCH -N2", ()),  # how a directive is switched off
    ("# SBATCH lines follow", ()),
    ("# SBATCH -N sets the number of nodes", ()),
    ("# sbatch job.sh", ()),
    ("#sbatch this with -N2", ()),
    ("# SBATCH: see the manual", ()),
    ("#BATCH of 4 - see below", ()),
    ("# -N2", ()),
    ("  # indented words", ()),
    ("#SBATCH-N2", ()),  # sbatch reads it
    ("#SLURM -N2", ()),
    (
        "#PBS -l nodes=2:ppn=4,walltime=01:00:00\n#PBS -q spot\n#PBS -N x\n#PBS -j oe\n#PBS -V",
        (),
    ),
    ("#BSUB -n 4\n#BSUB -W 90\n#BSUB -q spot\n#BSUB -J fit", ()),
    ("#PBS -r n", ("--ignore-pbs",)),
    ("#PBS -h", ()),
    ("cat > other.sh <<EOF\n#!/bin/bash\n#SBATCH -N2\nEOF\nsbatch other.sh", ()),
    ("cat > other.sh <<-'EOF'\n#SBATCH -N2\nEOF", ()),
    ("echo '#!/bin/bash\n#SBATCH -N2\n' > other.sh", ()),
    ("x=$(cat <<EOF\n#SBATCH -N2\nEOF\n)", ()),
    ("#SBATCH -o here/%x-%j.out -e here/%x-%j.err", ()),
    ("#SBATCH -o %x-%j.out", ()),
    ("#SBATCH -o /dev/null", ()),
    ("#SBATCH -o /tmp/%u-%j.out", ()),
    ("#SBATCH -o 'he\\re/%j'", ()),
    ("#SBATCH -D here -o %j.out", ()),
    ("#SBATCH -o logs/x", ("-o", "x")),  # what does not count
    ("#SBATCH -a 1-3 -o %A_%a.out", ()),
    ("#SBATCH -a 1-3 -o here/%4a.out -e here/%j", ()),
    ("#SBATCH -a 1-3 -o /dev/null", ()),
    ("#SBATCH -a 1-3", ()),
    ("#SBATCH -a 7 -o out.txt", ()),
    ("#SBATCH --exclusive", ("--oversubscribe",)),  # the command line is there to overrule
    ("#SBATCH --requeue", ("--no-requeue",)),
    ("#SBATCH -N2", ("-N4",)),
    ("#SBATCH -N2\n#SBATCH --nodes=2", ()),
    ("#SBATCH --gres=gpu:k80:2 --gpus-per-node=k80:2", ()),
    ("#SBATCH --gres=shard:1 --gpus-per-node=2", ()),
    ("#SBATCH -N2 --ntasks-per-node=4 -n8", ()),
    ("#SBATCH -N1-4 --ntasks-per-node=4 -n2", ()),
    ("#SBATCH --ntasks-per-node=4 -n10", ()),
    ("#SBATCH -N2 -n1", ()),  # sbatch itself warns
    ("#SBATCH -N2 -n5 --ntasks-per-node=2", ()),  # slurmctld refuses
    ("#SBATCH --ntasks-per-gpu=2 -G2 -n4", ()),
    ("#SBATCH -c8\nexport SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun x", ()),
    ("#SBATCH -c8\nsrun --cpus-per-task=$SLURM_CPUS_PER_TASK x", ()),
    ("#SBATCH -c8\nsrun -c 8 x; srun -n2 -c8 y", ()),
    ("#SBATCH -c8\nsrun --mpi pmix -c $SLURM_CPUS_PER_TASK x", ()),
    ("#SBATCH -c8\nsrun --cpu-bind=none x", ()),
    ("#SBATCH -c8\nsrun hostname; echo srun x", ()),
    ("#SBATCH -c8\nmpirun x; python train.py", ()),
    ("#SBATCH -c1\nsrun x", ()),
    ("srun x", ()),
    ("#SBATCH --signal=B:USR1@120\ntrap save USR1\nsrun x & wait", ()),
    ("#SBATCH --signal=USR1@120\nsrun x", ()),
    ("#SBATCH --signal=USR1@120\ntrap cleanup EXIT\nsrun x", ()),
    ("#SBATCH --signal=USR1@120\ntrap '' USR1\nsrun x", ()),
    ("#SBATCH --signal=USR1@120\n# trap save USR1\necho 'trap save USR1'\nsrun x", ()),
    ("#SBATCH --signal=USR1@120 -t 0\nsrun x", ()),
]
