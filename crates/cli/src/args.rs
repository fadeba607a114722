//! The arguments of the command line.

use std::path::PathBuf;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use prudence::{Algorithm, DeviceName, Precision};

/// Safe reinforcement learning when nobody can write the safety cost down.
///
/// prudence learns a recurrent safety model from trajectories that are labelled safe or unsafe as a whole. The model
/// attributes the label to single steps. With it, prudence trains agents that maximise the return while a required
/// share of their trajectories is safe.
#[derive(Parser)]
#[command(name = "prudence", version = prudence::version(), max_term_width = 80, after_help = "Examples:\n  prudence tasks\n  prudence run navigation")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run the whole pipeline: collect, label, fit, train, evaluate, report
    ///
    /// Collects episodes with SAC, labels them by the task's rule, fits a safety model to them, trains agents with it,
    /// tests the agents on the true rule, and writes a report. Inside a training, the model is refitted to the agent's own
    /// labelled episodes. With --rounds, the last three stages are repeated with the agents' own episodes.
    #[command(after_help = "Examples:\n  prudence run navigation\n  prudence run navigation --algo all --seeds 10\n  \
        prudence run navigation --rounds 1 --set refit.every=0\n  \
        prudence run navigation --replicas 5")]
    Run(RunArgs),
    /// List tasks, or show one with all settings
    #[command(after_help = "Examples:\n  prudence tasks\n  prudence tasks navigation")]
    Tasks(TasksArgs),
    /// Collect episodes with unconstrained SAC and store all of them
    #[command(after_help = "Example:\n  prudence collect navigation --steps 60000 --out episodes")]
    Collect(CollectArgs),
    /// Label stored episodes by a rule or from a table
    ///
    /// Without --rule and --from, episodes are labelled by the rule of their task. New labels overrule those that
    /// another rule or a table gave to the same episodes.
    ///
    /// A table is a CSV file with the header episode,start,end,safe,at, where start, end and at are optional.
    #[command(
        after_help = "Examples:\n  prudence label episodes\n  prudence label episodes --rule 'count(in_danger) <= 1'\n  \
        prudence label episodes --from labels.csv"
    )]
    Label(LabelArgs),
    /// Fit the safety model to labelled episodes and report its accuracy
    #[command(after_help = "Example:\n  prudence fit episodes --out model")]
    Fit(FitArgs),
    /// Train agents with one algorithm, or with all
    #[command(after_help = "Examples:\n  prudence train navigation --algo sac --out agent\n  \
        prudence train navigation --algo safesac-h --safety model \\\n    --data episodes --out agent")]
    Train(TrainArgs),
    /// Continue an interrupted run, training or collection
    ///
    /// The results have the same bits as those of a run that was not interrupted.
    #[command(after_help = "Example:\n  prudence resume runs/navigation-1")]
    Resume(ResumeArgs),
    /// Test trained agents on the true rule, with confidence intervals
    #[command(after_help = "Examples:\n  prudence eval runs/navigation-1 --episodes 1000\n  \
        prudence eval runs/navigation-1 --rule 'count(in_danger) <= 0'")]
    Eval(EvalArgs),
    /// Plot the training curves of one or more runs
    #[command(after_help = "Example:\n  prudence plot runs/navigation-1 --out curves.svg")]
    Plot(PlotArgs),
    /// Record or draw one episode of given actions or of a trained agent
    ///
    /// Actions are random, zero, or come from a CSV file without a header, with one row per step, in the environment's
    /// units. An agent takes the mode of its policy; its starts differ from those of `eval`. In pictures the agent is
    /// blue while the rule is kept and orange once it is violated.
    #[command(after_help = "Examples:\n  prudence rollout navigation --render random.gif\n  \
        prudence rollout navigation --actions a.csv --out steps.jsonl\n  \
        prudence rollout --agent runs/hopper-1/round-2/safesac-h/seed-0 \\\n    --render hop.gif")]
    Rollout(RolloutArgs),
    /// Inspect stored episodes, or check files for damage
    #[command(subcommand)]
    #[command(after_help = "Examples:\n  prudence data info episodes\n  prudence data check runs/navigation-1\n  \
        prudence data show episodes/episodes-seed-0 --episode 7")]
    Data(DataCommand),
    /// Install the physics engines that some tasks need, or show their status
    ///
    /// The engines are kept in $PRUDENCE_ENGINES, by default in the user's cache folder. They are downloaded with the
    /// pip of $PYTHON, by default python3.
    #[command(after_help = "Examples:\n  prudence engines install\n  prudence engines install --from wheels\n  \
        prudence engines status")]
    Engines(EnginesArgs),
    /// List the devices that can hold the networks: the CPU and graphics cards
    #[command(after_help = "Example:\n  prudence devices")]
    Devices {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check or simulate RDDL domains
    #[command(subcommand)]
    #[command(after_help = "Examples:\n  prudence rddl check domain.rddl instance.rddl\n  \
        prudence rddl simulate domain.rddl instance.rddl --steps 50")]
    Rddl(RddlCommand),
    /// Measure the speed of updates, fitting, acting, training or an environment
    #[command(subcommand)]
    #[command(after_help = "Examples:\n  prudence bench update\n  prudence bench env --task hvac")]
    Bench(BenchCommand),
    /// Generate completions for a shell
    #[command(after_help = "Example:\n  prudence completions bash > /etc/bash_completion.d/prudence")]
    Completions {
        /// The shell to generate completions for
        shell: clap_complete::Shell,
    },
}

/// Settings that override those of the task.
#[derive(Args)]
pub struct Settings {
    /// Set a value, e.g. train.steps=1000 (repeatable; overrides --config)
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub sets: Vec<String>,
    /// A TOML file with settings that override the task's (repeatable)
    #[arg(long = "config", value_name = "FILE")]
    pub configs: Vec<PathBuf>,
}

impl Settings {
    /// Whether nothing is overridden.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.configs.is_empty()
    }
}

/// Options of output and of threads.
#[derive(Args)]
pub struct Common {
    /// Print the result as JSON to stdout
    #[arg(long)]
    pub json: bool,
    /// Print only errors to stderr
    #[arg(long, short)]
    pub quiet: bool,
    /// The number of CPU threads [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// Where networks are trained.
#[derive(Args)]
pub struct OnDevice {
    /// Where agents are trained and models fitted: on the CPU, on an NVIDIA card, or (auto) on the card if there is one
    #[arg(long, value_enum, default_value_t)]
    pub device: Device,
}

/// The name of a device.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Device {
    #[default]
    Cpu,
    Cuda,
    Auto,
}

impl Device {
    /// The library's name for it.
    pub fn name(self) -> DeviceName {
        match self {
            Self::Cpu => DeviceName::Cpu,
            Self::Cuda => DeviceName::Cuda,
            Self::Auto => DeviceName::Auto,
        }
    }
}

/// The precision of matrix products on a graphics card.
#[derive(Clone, Copy, ValueEnum)]
pub enum PrecisionName {
    Fp32,
    Tf32,
}

impl PrecisionName {
    /// The library's name for it.
    pub fn precision(self) -> Precision {
        match self {
            Self::Fp32 => Precision::Fp32,
            Self::Tf32 => Precision::Tf32,
        }
    }
}

/// The name of an algorithm, or `all`.
#[derive(Clone, Copy, ValueEnum)]
pub enum AlgoName {
    Sac,
    SafesacH,
    SafesacNoh,
    SafesacNonlb,
    All,
}

impl AlgoName {
    /// The algorithms that the name stands for.
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
    /// The name of a task or the path of a task file
    #[arg(value_parser = TaskName, hide_possible_values = true)]
    pub task: String,
    /// The folder of the run; must not exist [default: runs/TASK-N, with the next free N]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Algorithms to train and test, separated by commas [default: the task's, sac,safesac-h]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub algo: Vec<AlgoName>,
    /// Seeds per algorithm [default: the task's, or 1 with --replicas]
    #[arg(long, value_name = "K")]
    pub seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Independent repetitions of the whole run, each in its own folder
    #[arg(long, value_name = "R")]
    pub replicas: Option<u64>,
    /// Test episodes per seed
    #[arg(long, value_name = "N")]
    pub episodes: Option<u64>,
    /// Repetitions of label, fit and train with the agents' own episodes
    #[arg(long, value_name = "R")]
    pub rounds: Option<usize>,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub on: OnDevice,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct TasksArgs {
    /// The task to show; without it, all tasks are listed
    #[arg(value_parser = TaskName, hide_possible_values = true)]
    pub task: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct CollectArgs {
    /// The name of a task or the path of a task file
    #[arg(value_parser = TaskName, hide_possible_values = true)]
    pub task: String,
    /// Environment steps [default: the task's]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// The folder for the episodes; must not exist
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The number of collectors, each with its own seed
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub on: OnDevice,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct LabelArgs {
    /// A folder of stored episodes
    pub dir: PathBuf,
    /// Label by the rule of this task [default: the task of the episodes]
    #[arg(long, conflicts_with = "from", value_parser = TaskName, hide_possible_values = true)]
    pub task: Option<String>,
    /// Label by this rule
    #[arg(long, value_name = "EXPR", conflicts_with = "from")]
    pub rule: Option<String>,
    /// Take the labels from this table
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["sets", "configs", "seed"])]
    pub from: Option<PathBuf>,
    /// The seed for drawing the segments that start later
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub settings: Settings,
    /// Print the result as JSON to stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct FitArgs {
    /// Folders of labelled episodes
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
    /// The folder for the model; an interrupted fit in it is continued
    #[arg(long, value_name = "MODEL")]
    pub out: PathBuf,
    /// The task [default: the task of the episodes]
    #[arg(long, value_parser = TaskName, hide_possible_values = true)]
    pub task: Option<String>,
    /// The seed of the initial weights and the batches
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub on: OnDevice,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct TrainArgs {
    /// The name of a task or the path of a task file
    #[arg(value_parser = TaskName, hide_possible_values = true)]
    pub task: String,
    /// The algorithm to train
    #[arg(long)]
    pub algo: AlgoName,
    /// The safety model, as a folder or file; all algorithms but sac need it
    #[arg(long, value_name = "MODEL")]
    pub safety: Option<PathBuf>,
    /// Stored episodes for the replay buffer, scored by the safety model (repeatable)
    #[arg(long, value_name = "DIR")]
    pub data: Vec<PathBuf>,
    /// The number of seeds
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// The folder of the training; must not exist
    #[arg(long, value_name = "RUN")]
    pub out: PathBuf,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub on: OnDevice,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct ResumeArgs {
    /// The folder of a run, a training or a collection
    pub run: PathBuf,
    #[command(flatten)]
    pub on: OnDevice,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct EvalArgs {
    /// The folder of a run or a training
    pub run: PathBuf,
    /// Test episodes per seed
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub episodes: u64,
    /// Sample actions from the policy instead of taking its mode
    #[arg(long)]
    pub sampled: bool,
    /// Also judge the same episodes by this rule (repeatable)
    #[arg(long, value_name = "EXPR")]
    pub rule: Vec<String>,
    /// The number of the first test episode, which determines the starts
    #[arg(long, value_name = "I", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 40))]
    pub first: u64,
    #[command(flatten)]
    pub common: Common,
}

/// How `rollout` chooses actions without a file or an agent.
#[derive(Clone, Copy, ValueEnum)]
pub enum PolicyName {
    /// Uniform in the action space
    Random,
    /// As close to zero as the action space allows
    Zero,
}

/// The name of a task or the path of a task file. Any text is accepted; shells complete the names.
#[derive(Clone)]
pub struct TaskName;

impl TypedValueParser for TaskName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(prudence::tasks::names().map(PossibleValue::new)))
    }
}

/// A figure to draw.
#[derive(Clone, Copy, ValueEnum)]
pub enum FigureName {
    /// Return and safe share over environment steps
    LearningCurves,
    /// The multiplier lambda over environment steps
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
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// The figure to draw
    #[arg(long, default_value = "learning-curves")]
    pub figure: FigureName,
}

#[derive(Args)]
pub struct RolloutArgs {
    /// The name of a task or the path of a task file
    #[arg(required_unless_present = "agent", value_parser = TaskName, hide_possible_values = true)]
    pub task: Option<String>,
    /// The actions: CSV without a header, one row per step
    #[arg(long, value_name = "FILE.csv", requires = "task")]
    pub actions: Option<PathBuf>,
    /// How actions are chosen without --actions and --agent [default: random]
    #[arg(long, requires = "task", conflicts_with = "actions")]
    pub policy: Option<PolicyName>,
    /// The folder of a trained agent, RUN/round-R/ALGO/seed-S, which acts in the environment of its run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["task", "actions", "policy", "state", "configs", "sets"])]
    pub agent: Option<PathBuf>,
    /// The seed of the start and of the noise
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// A JSON file with the state to start from
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// The file to write, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
    /// The picture to write, an animation or a sheet of frames
    #[arg(long, value_name = "FILE.gif|.png")]
    pub render: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Subcommand)]
pub enum DataCommand {
    /// Summarise stores: episodes, lengths, returns, labels and annotators
    #[command(after_help = "Example:\n  prudence data info episodes")]
    Info {
        /// A store, or a folder of stores
        dir: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Verify the hash and the content of every file in a folder and its subfolders
    ///
    /// Checks stores, labels, models, policies, checkpoints, records and settings. The exit code is 2 if a file is
    /// damaged.
    #[command(after_help = "Example:\n  prudence data check runs/navigation-1")]
    Check {
        /// A store, a run, or any folder that contains them
        dir: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one episode as a table, or draw it
    ///
    /// The table has one row per step: the observation before it, the action, the reward, and the signals after it. With
    /// --out FILE.svg the signals are drawn over time and, below them, the blame that a safety model (--safety) puts on
    /// each step. With FILE.gif or FILE.png the recorded actions are replayed in the run's environment, and the agent's
    /// body is drawn.
    #[command(after_help = "Examples:\n  prudence data show episodes/episodes-seed-0 --episode 7\n  \
        prudence data show episodes/episodes-seed-0 --episode 7 --safety model \\\n    --out signals.svg")]
    Show {
        /// The folder of a store
        store: PathBuf,
        /// The number of the episode
        #[arg(long, value_name = "N", default_value_t = 0)]
        episode: u64,
        /// A safety model, whose log P is shown for each step
        #[arg(long, value_name = "MODEL")]
        safety: Option<PathBuf>,
        /// The picture to write
        #[arg(long, value_name = "FILE.svg|.gif|.png", conflicts_with = "json")]
        out: Option<PathBuf>,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
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
    /// Download, verify and unpack what is missing
    #[command(after_help = "Example:\n  prudence engines install")]
    Install {
        /// Take the wheels from this folder instead of downloading them
        #[arg(long, value_name = "DIR")]
        from: Option<PathBuf>,
        /// Print the resulting status as JSON
        #[arg(long)]
        json: bool,
        /// Print only errors to stderr
        #[arg(long, short)]
        quiet: bool,
    },
    /// Show what is installed, where, and what is missing (the default)
    #[command(after_help = "Example:\n  prudence engines status --json")]
    Status {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub enum RddlCommand {
    /// Check a domain and an instance, and print a summary
    #[command(after_help = "Example:\n  prudence rddl check domain.rddl instance.rddl")]
    Check {
        /// Files with a domain, an instance and its non-fluents, in any order
        #[arg(required = true, value_name = "FILE.rddl")]
        files: Vec<PathBuf>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Simulate a domain and write every step as JSON
    ///
    /// The action file has one JSON object per step, with the actions that differ from their defaults, such as
    /// {"move___x": 0.5}.
    #[command(after_help = "Examples:\n  prudence rddl simulate domain.rddl instance.rddl --steps 50\n  \
        prudence rddl simulate domain.rddl instance.rddl --actions a.jsonl")]
    Simulate(SimulateArgs),
}

#[derive(Args)]
pub struct SimulateArgs {
    /// Files with a domain, an instance and its non-fluents, in any order
    #[arg(required = true, value_name = "FILE.rddl")]
    pub files: Vec<PathBuf>,
    /// The number of steps [default: that of the actions, otherwise the horizon, otherwise 100]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// The seed of all random draws
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// The actions: one JSON object per step, from ground names to values [default: every action has its default value]
    #[arg(long, value_name = "FILE.jsonl")]
    pub actions: Option<PathBuf>,
    /// Take all random draws from this file of uniform numbers, one per line; the key of a draw selects the number
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "no_noise"])]
    pub uniforms: Option<PathBuf>,
    /// Replace every Normal by its mean; an error for domains with other distributions
    #[arg(long, conflicts_with = "seed")]
    pub no_noise: bool,
    /// The file to write, one JSON object per line [default: stdout]
    #[arg(long, value_name = "FILE.jsonl")]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}

#[derive(Subcommand)]
pub enum BenchCommand {
    /// One update of an algorithm (observation 17, action 6, hidden state 64)
    #[command(after_help = "Example:\n  prudence bench update --hidden 256 --batch 256")]
    Update {
        /// The algorithm to update
        #[arg(long, default_value = "safesac-h")]
        algo: AlgoName,
        /// Units per hidden layer
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=8192))]
        hidden: u64,
        /// Transitions per batch
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65536))]
        batch: u64,
        /// Threads, each with its own agents
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
        threads: u64,
        /// Agents per thread
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
        population: u64,
        /// What is measured: the CPU, an NVIDIA card, or (auto) the card if there is one
        #[arg(long, value_enum, default_value_t)]
        device: Device,
        /// The precision of matrix products on a graphics card
        #[arg(long, value_enum, default_value = "tf32")]
        precision: PrecisionName,
        #[command(flatten)]
        measure: Measure,
    },
    /// One step of a task's environment, with random actions
    #[command(after_help = "Example:\n  prudence bench env --task hvac")]
    Env {
        /// The name of a task or the path of a task file
        #[arg(long, default_value = "navigation", value_parser = TaskName, hide_possible_values = true)]
        task: String,
        /// Set a value, e.g. env.noise=false (repeatable; overrides --config)
        #[arg(long, value_name = "SECTION.KEY=VALUE")]
        set: Vec<String>,
        /// A TOML file with settings that override the task's (repeatable)
        #[arg(long, value_name = "FILE")]
        config: Vec<PathBuf>,
        #[command(flatten)]
        measure: Measure,
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
        /// Dimensions of the observation
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=65536))]
        observation: u64,
        /// Dimensions of the action
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=65536))]
        action: u64,
        /// Models fitted at the same time
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
        models: u64,
        /// Gradient steps before the measurement starts
        #[arg(long, default_value_t = 3)]
        warm_steps: u64,
        /// What is measured: the CPU, an NVIDIA card, or (auto) the card if there is one
        #[arg(long, value_enum, default_value_t)]
        device: Device,
        #[command(flatten)]
        measure: Measure,
    },
    /// One step of acting: the policy and the safety model for a single observation
    #[command(after_help = "Example:\n  prudence bench act --hidden 256")]
    Act {
        /// Units per hidden layer of the policy
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=8192))]
        hidden: u64,
        /// Members in the ensemble of safety models
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=63))]
        ensemble: u64,
        /// Agents that act at the same time
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
        population: u64,
        /// What is measured: the CPU, an NVIDIA card, or (auto) the card if there is one
        #[arg(long, value_enum, default_value_t)]
        device: Device,
        #[command(flatten)]
        measure: Measure,
    },
    /// One training step of a population: acting, environments, scoring and updates
    #[command(after_help = "Example:\n  prudence bench train --task half-cheetah --population 40 --device cuda")]
    Train {
        /// The name of a task or the path of a task file
        #[arg(long, default_value = "navigation", value_parser = TaskName, hide_possible_values = true)]
        task: String,
        /// Set a value, e.g. train.precision="fp32" (repeatable; overrides --config)
        #[arg(long, value_name = "SECTION.KEY=VALUE")]
        set: Vec<String>,
        /// A TOML file with settings that override the task's (repeatable)
        #[arg(long, value_name = "FILE")]
        config: Vec<PathBuf>,
        /// The algorithm
        #[arg(long, default_value = "safesac-h")]
        algo: AlgoName,
        /// Agents that train in lockstep
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
        population: u64,
        /// What is measured: the CPU, an NVIDIA card, or (auto) the card if there is one
        #[arg(long, value_enum, default_value_t)]
        device: Device,
        /// Threads that step the environments when the agents are on a graphics card [default: the number of cores]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        #[command(flatten)]
        measure: Measure,
    },
}

/// How a benchmark measures and prints.
#[derive(Args)]
pub struct Measure {
    /// Approximate duration of the measurement in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = positive)]
    pub seconds: f64,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| *x > 0.0 && x.is_finite());
    number.ok_or_else(|| "expected a number above 0".to_owned())
}
