//! The arguments of kernels: each kernel takes one struct by value. A struct is declared once, for Rust and for C.

/// The address of numbers that a kernel reads.
pub(crate) type In = u64;
/// The address of numbers that a kernel writes.
pub(crate) type Out = u64;
/// The address of row indices or random addresses.
pub(crate) type Words = u64;
pub(crate) type Long = u64;
pub(crate) type Int = i32;
pub(crate) type Float = f32;
pub(crate) type Double = f64;

macro_rules! c_type {
    (In) => {
        "const float *"
    };
    (Out) => {
        "float *"
    };
    (Words) => {
        "const u32 *"
    };
    (Long) => {
        "u64 "
    };
    (Int) => {
        "int "
    };
    (Float) => {
        "float "
    };
    (Double) => {
        "double "
    };
    ($other:ident) => {
        concat!(stringify!($other), " ")
    };
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ident),* $(,)? })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub $field: $kind,)*
        })*

        /// The declarations of all structs in C.
        pub(crate) const DECLARATIONS: &str =
            concat!($("struct ", stringify!($name), " {\n", $("  ", c_type!($kind), stringify!($field), ";\n",)* "};\n",)*);
    };
}

arguments! {
    Normals { addresses: Words, out: Out, each: Int }
    Fill { to: Out, n: Long, value: Float }
    Add { sum: Out, other: In, n: Long }

    /// `b`, `bias` and the results of a group are `b_stride` and `out_stride` numbers after those of the one before.
    Product {
        a: In, second: In, b: In, bias: In, mask: In, out: Out, sums: Out,
        a_stride: Long, second_stride: Long, b_stride: Long, out_stride: Long, split_stride: Long,
        a_width: Int, a_share: Int, second_width: Int, second_share: Int,
        m: Int, n: Int, k: Int, groups: Int, splits: Int, relu: Int,
    }
    /// The first `products` of the layers are products; one of few outputs may follow.
    Chain {
        a: In, second: In, weights: In, out0: Out, out1: Out, out2: Out,
        a_stride: Long, second_stride: Long, stride: Long,
        a_width: Int, a_share: Int, second_width: Int, second_share: Int,
        width0: Int, width1: Int, width2: Int, layers: Int, products: Int, rows: Int,
    }
    AddSplits { parts: In, out: Out, sums: Out, stride: Long, m: Int, n: Int, groups: Int, splits: Int }
    Thin {
        a: In, second: In, weights: In, out: Out,
        a_stride: Long, second_stride: Long, stride: Long,
        a_width: Int, a_share: Int, second_width: Int, second_share: Int, rows: Int, n: Int, relu: Int,
    }
    /// `out` is the output or its gradient.
    Narrow {
        x: In, weights: In, out: Out, d_x: Out, d_weights: Out,
        stride: Long, d_stride: Long, split_stride: Long,
        rows: Int, k: Int, n: Int, groups: Int, splits: Int, relu: Int,
    }
    ByColumns { gradient: In, weights: In, out: Out, stride: Long, rows: Int, n: Int, columns: Int, share: Int }

    /// The weights and biases are those of the memory.
    GruScan {
        weights: In, bias: In, hidden: Out, gates: Out, candidate: Out,
        d_hidden: In, input_side: Out, memory_side: Out,
        stride: Long, steps: Int, rows: Int, h: Int,
    }
    GruStep { input: In, weights: In, hidden: Out, input_stride: Long, stride: Long, inputs: Int, share: Int, rows: Int, h: Int }

    Sample { head: In, noise: In, action: Out, log_prob: Out, rows: Long, width: Int, min: Float, max: Float }
    Mode { head: In, action: Out, n: Long, width: Int }
    SampleBackward {
        head: In, noise: In, action: In, action_gradient: In, log_temperature: In, d_head: Out,
        n: Long, rows: Int, width: Int, min: Float, max: Float,
    }

    CriticTarget {
        values: In, signal: In, not_terminal: In, log_prob: In, log_temperature: In, target: Out,
        agents: Int, rows: Int, of: Int, first: Int, networks: Int, limited: Int,
        discount: Float, low: Float, high: Float,
    }
    CriticLoss {
        values: In, target: In, gradient: Out, loss: Out,
        rows: Int, of: Int, first: Int, networks: Int,
    }
    Climb {
        values: In, weights: In, gradient: Out, value: Out,
        rows: Int, of: Int, first: Int, networks: Int, index: Int, heads: Int,
    }
    Temperature { log_temperature: In, log_prob: In, gradient: Out, entropy: Out, rows: Int, target_entropy: Float }

    Adam {
        values: Out, first: Out, second: Out, gradients: In, rate: In, correction: In, active: In, shrink: In, factor: In,
        follower: Out, each: Int, gain1: Float, beta2: Float, gain2: Float, epsilon: Float, share: Float,
    }
    Sum { values: In, sum: Out, each: Int }
    Clip { gradients: In, factor: Out, limit: Double, each: Int }

    /// What sampling reads of the tables. The memory is `m` numbers wide.
    Replay {
        shared_observation: In, shared_memory: In, own_observation: In, own_memory: In, centre: In, scale: In,
        s: Int, m: Int, history: Int, shared_capacity: Int, ring: Int,
    }
    Gather {
        replay: Replay, rows: Words, action_middle: In, action_half: In,
        shared_action: In, shared_reward: In, shared_score: In, shared_not_terminal: In,
        own_action: In, own_reward: In, own_score: In, own_not_terminal: In,
        state: Out, next_state: Out, action: Out, reward: Out, score: Out, not_terminal: Out,
        reward_centre: In, reward_scale: In, n: Int, size: Int, a: Int,
    }
    Append {
        rows: Words, new_action: In, new_reward: In, new_not_terminal: In, next_observation: In, new_score: In, new_memory: In,
        observation: Out, memory: Out, action: Out, reward: Out, score: Out, not_terminal: Out,
        s: Int, m: Int, a: Int,
    }

    See { observation: In, memory: In, centre: In, scale: In, state: Out, rows: Long, each: Long, s: Int, m: Int }
    ToEnv { action: In, middle: In, half: In, out: Out, n: Long, a: Int }
    Spans { column: In, places: Words, out: Out, width: Int, steps: Int, rows: Int }
    Normalise { observation: In, action: In, centre: In, scale: In, out: Out, replicas: Int, rows: Int, s: Int, a: Int }
    LogProb { logits: In, out: Out, replicas: Int, members: Int, rows: Int }
    Trajectory { labels: In, scale: In, logits: In, gradient: Out, loss: Out, steps: Int, rows: Int }
    FloorSum { log_prob: In, active: In, sum: Out, score: Out, n: Long, floor: Float }
    Remember { hidden: In, sum: In, memory: Out, rows: Int, replicas: Int, members: Int, h: Int, floor: Float }
}
