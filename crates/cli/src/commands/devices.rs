//! The command `prudence devices`.

use prudence::{CardInfo, Devices};

use super::{print_json, print_table};
use crate::text;

pub fn devices(json: bool) -> anyhow::Result<()> {
    let devices = Devices::find();
    if json {
        return print_json(&devices);
    }
    let mut rows = vec![vec!["cpu".to_owned(), format!("{} cores, vectors: {}", devices.cores, devices.vectors)]];
    let row = |card: &CardInfo| {
        let CardInfo { name, memory, capability, multiprocessors, cuda } = card;
        let memory = *memory as f64 / (1u64 << 30) as f64;
        let about = format!(
            "{name}, {memory:.0} GiB, {multiprocessors} multiprocessors, compute capability {capability}, CUDA {cuda}"
        );
        vec!["cuda".to_owned(), about]
    };
    rows.extend(devices.cards.iter().map(row));
    print_table(&["", ""], rows);
    if let Some(problem) = devices.problem {
        println!("{}", text::wrap(&format!("no graphics card can be used: {problem}")));
    }
    Ok(())
}
