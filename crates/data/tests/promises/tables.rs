//! Labels from a table: what is accepted, and what an error says.

use prudence_data::{Label, Store, import_csv};

use crate::{episode, label, schema, write};

fn import(table: &str) -> Result<Vec<Label>, String> {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(&dir.path().join("data"), schema()).unwrap();
    store.append(&[episode(10, 0), episode(20, 1)]).unwrap();
    let path = dir.path().join("table.csv");
    write(&path, table);
    import_csv(&path, &store, "anna", "2026-11-16T07:00:00Z").map_err(|e| e.to_string())
}

#[test]
fn tables_of_labels_are_read() {
    assert_eq!(
        import("episode,safe\n0,1\n1,unsafe\n").unwrap(),
        [label(0, 0, 10, true, None), label(1, 0, 20, false, None)]
    );
    assert_eq!(
        import("\u{feff}safe , at,episode,end, start\r\nTrue,,1,,\r\n\r\n0, 7,1,9,5\r\nfalse,,0,,3").unwrap(),
        [label(1, 0, 20, true, None), label(1, 5, 9, false, Some(7)), label(0, 3, 10, false, None)]
    );
    assert_eq!(import("\"episode\",\"safe\"\n\"1\",\"Safe\"\n").unwrap(), [label(1, 0, 20, true, None)], "quoted");
}

#[test]
fn faults_in_a_table_name_line_and_column() {
    for (table, problem) in [
        ("", "header: empty; expected columns among episode,start,end,safe,at"),
        ("0,1\n", "header: unknown column \"0\"; expected columns among episode,start,end,safe,at"),
        ("episode,start\n", "header: column \"safe\" is missing"),
        ("episode,safe,safe\n", "header: column \"safe\" appears twice"),
        ("episode,safe\n", "line 2: no labels; expected one per line"),
        ("episode,safe\n0,1\n0,0\n", "line 3, column safe: contradicts line 2"),
        ("episode,safe\n0,1\n0\n", "line 3: 1 cells; the header has 2"),
        ("episode,safe\n0,1\n\nx,1\n", "line 4, column episode: \"x\", expected a whole number"),
        ("episode,safe\n,1\n", "line 2, column episode: \"\", expected a whole number"),
        ("episode,safe\n0,maybe\n", "line 2, column safe: \"maybe\", expected 1, 0, true"),
        ("episode,safe\n2,1\n", "line 2, column episode: 2 does not exist; the store holds 2 episodes"),
        ("episode,safe,end\n0,1,11\n", "line 2: label of episode 0, steps 0..11: the episode has 10 steps"),
        (
            "episode,safe,end\n0,1,9999999999\n",
            "line 2, column end: \"9999999999\", expected a whole number from 0 to 4294967295",
        ),
        ("episode,safe,at\n0,1,3\n", "line 2: label of episode 0, steps 0..10: at = 3 in a safe span"),
        ("episode,safe,start\n0,1,-1\n", "line 2, column start: \"-1\", expected a whole number"),
    ] {
        let message = import(table).unwrap_err();
        assert!(message.contains(problem), "{message}");
    }
}
