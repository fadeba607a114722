//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use prudence::Algorithm;

/// Safe reinforcement learning when nobody can write the safety cost down.
///
/// prudence takes trajectories with a bit (safe / unsafe), learns a recurrent safety model that spreads the blame over
/// single steps, and trains an agent that earns as much reward as it can while a chosen share of its trajectories is safe.
#[derive(Parser)]
#[command(version, max_term_width = 110, after_help = "First steps:\n  prudence run navigation\n  prudence tasks")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Everything: collect, label, fit, train, evaluate, report
    #[command(after_help = "Examples:\n  prudence run navigation\n  prudence run navigation --algo all --seeds 10\n  \
        prudence run navigation --rounds 0 --set train.steps=20000")]
    Run(RunArgs),
    /// The tasks, or one in full
    #[command(after_help = "Example:\n  prudence tasks navigation")]
    Tasks(TasksArgs),
    /// Let unconstrained SAC collect episodes, every one kept
    #[command(after_help = "Example:\n  prudence collect navigation --steps 60000 --out episodes")]
    Collect(CollectArgs),
    /// Label stored episodes: by the task's rule, by a rule of yours, or from a table
    #[command(
        after_help = "Examples:\n  prudence label episodes\n  prudence label episodes --rule 'count(in_danger) <= 1'\n  \
        prudence label episodes --from labels.csv      (header: episode,start,end,safe,at; start, end, at optional)"
    )]
    Label(LabelArgs),
    /// Fit the safety model to labelled episodes, and say how good it is
    #[command(after_help = "Example:\n  prudence fit episodes --out model")]
    Fit(FitArgs),
    /// Train one algorithm
    #[command(
        after_help = "Example:\n  prudence train navigation --algo safesac-h --safety model --data episodes --out agent"
    )]
    Train(TrainArgs),
    /// Go on exactly where a run stopped
    #[command(after_help = "Example:\n  prudence resume runs/navigation-1")]
    Resume(ResumeArgs),
    /// Test trained agents on the true rule, with intervals
    #[command(after_help = "Example:\n  prudence eval runs/navigation-1 --episodes 1000")]
    Eval(EvalArgs),
    /// Draw the training curves of one or more runs
    #[command(after_help = "Example:\n  prudence plot runs/navigation-1 --out curves.svg")]
    Plot(PlotArgs),
    /// One episode by given actions or a trained agent, written down or drawn
    #[command(
        after_help = "Examples:\n  prudence rollout navigation --actions a.csv --out steps.jsonl\n  prudence rollout --agent \
        runs/hopper-1/round-2/safesac-h/seed-0 --render hop.gif\n\nThe action file is CSV without a header, one row a step, \
        in the environment's units. An agent acts by its policy's mode; \
        starts are other ones than `eval`'s. Pictures are blue while the rule is kept, and \
        orange once it is broken."
    )]
    Rollout(RolloutArgs),
    /// Install the physics engines that some tasks need, or say what is there
    #[command(
        after_help = "Examples:\n  prudence engines install\n  prudence engines install --from wheels    (a folder with \
        the wheels, where there is no network)\n  prudence engines status\n\nEngines are kept in $PRUDENCE_ENGINES, else \
        in the user's cache folder. pip is run by $PYTHON, else python3."
    )]
    Engines(EnginesArgs),
    /// Check or simulate RDDL texts
    #[command(subcommand)]
    Rddl(RddlCommand),
    /// Measure speed
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Completions for your shell
    #[command(after_help = "Example:\n  prudence completions bash > /etc/bash_completion.d/prudence")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Settings over the task's own.
#[derive(Args)]
pub struct Settings {
    /// Set a value, e.g. train.steps=1000 (repeatable; over --config)
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
    /// A TOML file with settings over the task's own (repeatable)
    #[arg(long = "config", value_name = "FILE")]
    pub configs: Vec<PathBuf>,
}

/// How a command talks and works.
#[derive(Args)]
pub struct Common {
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Say nothing on stderr but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Threads: agents trained or tested at a time [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// An algorithm's name.
#[derive(Clone, Copy, ValueEnum)]
pub enum AlgoName {
    Sac,
    SafesacH,
    SafesacNoh,
    SafesacNonlb,
    All,
}

impl AlgoName {
    /// The algorithms meant.
    pub fn algorithms(self) -> Vec<Algorithm> {
        match self {
            Self::Sac => vec![Algorithm::Sac],
            Self::SafesacH => vec![Algorithm::SafesacH],
            Self::SafesacNoh => vec![Algorithm::SafesacNoh],
            Self::SafesacNonlb => vec![Algorithm::SafesacNonlb],
            Self::All => Algorithm::ALL.to_vec(),
        }
    }
}

#[derive(Args)]
pub struct RunArgs {
    /// A task's name or the path of a task file
    pub task: String,
    /// The run's folder; must not exist [default: runs/TASK-N, the next free N]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Algorithms to train and test, with commas between [default: the task's: sac,safesac-h]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub algo: Vec<AlgoName>,
    /// Seeds an algorithm
    #[arg(long, value_name = "K")]
    pub seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Test episodes a seed
    #[arg(long, value_name = "N")]
    pub episodes: Option<u64>,
    /// Repetitions with the safe agents' own episodes; 0 is the paper's recipe
    #[arg(long, value_name = "R")]
    pub rounds: Option<usize>,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct TasksArgs {
    /// One task, in full
    pub task: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CollectArgs {
    /// A task's name or the path of a task file
    pub task: String,
    /// Environment steps [default: the task's]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Where to; must not exist
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Collectors
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct LabelArgs {
    /// A folder of stored episodes
    pub dir: PathBuf,
    /// Label by this task's rule [default: the task the episodes are from]
    #[arg(long, conflicts_with_all = ["rule", "from"])]
    pub task: Option<String>,
    /// Label by this rule
    #[arg(long, value_name = "EXPR", conflicts_with = "from")]
    pub rule: Option<String>,
    /// Take labels from a table
    #[arg(long, value_name = "FILE.csv")]
    pub from: Option<PathBuf>,
    /// The seed of the segments that start later
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct FitArgs {
    /// Folders of labelled episodes
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
    /// The model's folder; must not exist
    #[arg(long, value_name = "MODEL")]
    pub out: PathBuf,
    /// The task [default: the one the episodes are from]
    #[arg(long)]
    pub task: Option<String>,
    /// The seed of split, initial weights and batches
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct TrainArgs {
    /// A task's name or the path of a task file
    pub task: String,
    /// The algorithm
    #[arg(long)]
    pub algo: AlgoName,
    /// The safety model (all but sac need it)
    #[arg(long, value_name = "MODEL")]
    pub safety: Option<PathBuf>,
    /// Stored episodes to start from, enriched by the safety model (repeatable)
    #[arg(long, value_name = "DIR")]
    pub data: Vec<PathBuf>,
    /// Seeds
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// The run's folder; must not exist
    #[arg(long, value_name = "RUN")]
    pub out: PathBuf,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct ResumeArgs {
    /// The folder of a run, a training or a collection
    pub run: PathBuf,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct EvalArgs {
    /// The folder of a run or a training
    pub run: PathBuf,
    /// Test episodes a seed
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub episodes: u64,
    /// Draw actions from the policy instead of taking its mode
    #[arg(long)]
    pub sampled: bool,
    /// Start the test episodes elsewhere: number of the first one
    #[arg(long, value_name = "I", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 40))]
    pub first: u64,
    #[command(flatten)]
    pub common: Common,
}

/// What to draw.
#[derive(Clone, Copy, ValueEnum)]
pub enum FigureName {
    /// Return and safe share over steps
    LearningCurves,
    /// Lambda over steps
    Multiplier,
}

#[derive(Args)]
pub struct PlotArgs {
    /// Folders of runs or trainings
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// The file to write
    #[arg(long, value_name = "FILE.svg")]
    pub out: PathBuf,
    /// What to draw
    #[arg(long, default_value = "learning-curves")]
    pub figure: FigureName,
}

#[derive(Args)]
pub struct RolloutArgs {
    /// A task's name or the path of a task file
    #[arg(required_unless_present = "agent", requires = "actions")]
    pub task: Option<String>,
    /// CSV without a header, one row a step
    #[arg(long, value_name = "FILE.csv", requires = "task")]
    pub actions: Option<PathBuf>,
    /// A trained agent's folder, RUN/round-R/ALGO/seed-S: it acts, in its run's environment
    #[arg(long, value_name = "DIR", conflicts_with_all = ["task", "actions", "state", "configs", "sets"])]
    pub agent: Option<PathBuf>,
    /// The seed of the start and the noise
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// A JSON file with the state to start from
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// The file to write, one JSON object a line; must not exist
    #[arg(long, value_name = "FILE.jsonl", required_unless_present = "render")]
    pub out: Option<PathBuf>,
    /// Draw the episode: a moving picture, or a sheet of its frames; must not exist
    #[arg(long, value_name = "FILE.gif|.png")]
    pub render: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EnginesArgs {
    #[command(subcommand)]
    pub command: Option<EnginesCommand>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum EnginesCommand {
    /// Fetch, check and unpack what is missing
    #[command(after_help = "Example:\n  prudence engines install")]
    Install {
        /// A folder with the wheels, instead of the network
        #[arg(long, value_name = "DIR")]
        from: Option<PathBuf>,
        /// Print what is there afterwards as JSON
        #[arg(long)]
        json: bool,
        /// Say nothing on stderr but errors
        #[arg(long, short)]
        quiet: bool,
    },
    /// What is there, where, and what is missing and why (the default)
    #[command(after_help = "Example:\n  prudence engines status --json")]
    Status {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub enum RddlCommand {
    /// Read, check and compile a domain and an instance; print what they hold
    #[command(after_help = "Example:\n  prudence rddl check domain.rddl instance.rddl")]
    Check {
        /// Files with a domain, an instance and, there or apart, its non-fluents; in any order
        #[arg(required = true, value_name = "FILE.rddl")]
        files: Vec<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Step a domain and write every step down
    #[command(
        after_help = "Example:\n  prudence rddl simulate domain.rddl instance.rddl --actions a.jsonl\n\nThe action file has \
        one JSON object a step, with the actions that differ from their defaults: {\"move___x\": 0.5}"
    )]
    Simulate(SimulateArgs),
}

#[derive(Args)]
pub struct SimulateArgs {
    /// Files with a domain, an instance and, there or apart, its non-fluents; in any order
    #[arg(required = true, value_name = "FILE.rddl")]
    pub files: Vec<PathBuf>,
    /// How many steps [default: as many as there are actions, else the horizon, else 100]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// The seed of all draws
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// One JSON object a step, ground names to values; without it every action has its default
    #[arg(long, value_name = "FILE.jsonl")]
    pub actions: Option<PathBuf>,
    /// Take every draw by its key from this list of uniform numbers, one a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "no_noise"])]
    pub uniforms: Option<PathBuf>,
    /// Every Normal gives its mean; refused for domains with other distributions
    #[arg(long, conflicts_with = "seed")]
    pub no_noise: bool,
    /// The file to write, one JSON object a line; must not exist [default: stdout]
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum BenchCommand {
    /// One update (observation 17, action 6, h 64)
    #[command(after_help = "Example:\n  prudence bench update --hidden 256 --batch 256")]
    Update {
        /// The algorithm
        #[arg(long, default_value = "safesac-h")]
        algo: AlgoName,
        /// Units in both hidden layers
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=8192))]
        hidden: u64,
        /// Transitions
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65536))]
        batch: u64,
        /// Threads, each with agents of its own
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
        threads: u64,
        /// Agents a thread
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
        population: u64,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// One step of a task's environment, under random actions
    #[command(after_help = "Example:\n  prudence bench env --task hvac")]
    Env {
        /// The task: a name or a task file
        #[arg(long, default_value = "navigation")]
        task: String,
        /// Set a value, e.g. env.noise=false (repeatable; over --config)
        #[arg(long, value_name = "SECTION.KEY=VALUE")]
        set: Vec<String>,
        /// A TOML file with settings over the task's own (repeatable)
        #[arg(long, value_name = "FILE")]
        config: Vec<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// One step of fitting a safety model
    #[command(after_help = "Example:\n  prudence bench fit --batch 32 --steps 1000 --observation 17 --action 6")]
    Fit {
        /// Segments per step
        #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=65536))]
        batch: u64,
        /// Steps of each segment
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        steps: u64,
        /// Numbers of an observation
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=65536))]
        observation: u64,
        /// Numbers of an action
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=65536))]
        action: u64,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// One step of acting: the policy and the safety model at a batch of one
    #[command(after_help = "Example:\n  prudence bench act --hidden 256")]
    Act {
        /// Units in both hidden layers of the policy
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=8192))]
        hidden: u64,
        /// Members of the safety model's ensemble
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=63))]
        ensemble: u64,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}
