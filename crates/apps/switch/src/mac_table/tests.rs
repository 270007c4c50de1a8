use bellows_engine::{RequestError, Requests};

use super::requests::{Operator, Page, Request, Selection};
use super::*;

fn table() -> Arc<MacTable> {
    let fixed = BTreeMap::from([("02:00:00:00:00:09 vlan 7".to_owned(), "b".to_owned())]);
    let config = Config { fixed, ..Config::default() };
    Arc::new(MacTable::configure(config, &Context::default()).unwrap())
}

fn key(station: u32, vlan: u16) -> Key {
    let [a, b, c, d] = station.to_be_bytes();
    Key::new(u64::from_le_bytes([2, 0, a, b, c, d, 0, 0]), vlan)
}

fn enter(table: &MacTable, key: Key, port: PortNumber) {
    let entry = Entry { key, port, ..Entry::default() };
    assert!(table.current().enter(entry));
}

fn ask(operator: &mut Operator, request: Request) -> Result<Value, RequestError> {
    Requests::answer(operator, request)
}

fn list(operator: &mut Operator, select: Selection, goes_on: bool) -> (Vec<Value>, bool) {
    let mut answer = ask(operator, Request::Addresses(Page { select, goes_on })).unwrap();
    let Value::Array(all) = answer["addresses"].take() else { panic!() };
    (all, answer["more"] == true)
}

#[test]
fn addresses_are_listed_in_order_and_selected() {
    let table = table();
    let a = table.port("a").unwrap();
    for (station, vlan) in [(3, 0), (2, 0), (2, 7)] {
        enter(&table, key(station, vlan), a.number);
    }
    let mut operator = Operator::new(Arc::clone(&table));
    let (all, more) = list(&mut operator, Selection::default(), false);
    let shown: Vec<_> = all.iter().map(|one| (one["mac"].as_str().unwrap(), &one["vlan"], &one["port"])).collect();
    let (none, seven, a, b) = (json!(null), json!(7), json!("a"), json!("b"));
    assert_eq!(
        shown,
        [
            ("02:00:00:00:00:02", &none, &a),
            ("02:00:00:00:00:03", &none, &a),
            ("02:00:00:00:00:02", &seven, &a),
            ("02:00:00:00:00:09", &seven, &b)
        ]
    );
    assert!(!more);
    assert_eq!((&all[0]["state"], &all[0]["age_seconds"]), (&json!("learned"), &json!(0)));
    assert_eq!((&all[3]["state"], &all[3]["age_seconds"]), (&json!("static"), &json!(null)));
    let port = |name: &str| Selection { port: Some(name.to_owned()), ..Selection::default() };
    let mac = |mac: &str| Selection { mac: Some(mac.to_owned()), ..Selection::default() };
    let vlan = |vlan| Selection { vlan: Some(vlan), ..Selection::default() };
    for (select, count) in [(port("a"), 3), (port("b"), 1), (mac("02-00-00-00-00-02"), 2), (vlan(7), 2), (vlan(8), 0)] {
        assert_eq!(list(&mut operator, select.clone(), false).0.len(), count, "{select:?}");
    }
    for (select, said) in [(port("A"), "there is no port `A`; "), (mac("02"), "not a MAC address")] {
        let error = ask(&mut operator, Request::Flush(select)).unwrap_err();
        assert!(error.is_mistake && error.message.contains(said), "{}", error.message);
    }
    let deleted = ask(&mut operator, Request::Flush(vlan(7))).unwrap();
    assert_eq!((deleted, table.status()["addresses"].as_u64()), (json!({ "deleted": 1 }), Some(3)), "static ones stay");
}

#[test]
fn long_lists_have_pages() {
    let table = Arc::new(MacTable::configure(Config::default(), &Context::default()).unwrap());
    let larger = Arc::new(Slots::new(32_768));
    table.slots.lock().replace(Arc::clone(&larger));
    (0..40_000).for_each(|station| enter(&table, key(station + 1, 0), 0));
    let mut operator = Operator::new(Arc::clone(&table));
    let (mut all, mut more) = list(&mut operator, Selection::default(), false);
    while more {
        let page = list(&mut operator, Selection::default(), true);
        all.extend(page.0);
        more = page.1;
    }
    assert_eq!(all.len(), 40_000);
    assert!(all.is_sorted_by_key(|one| one["mac"].as_str().unwrap().to_owned()));
    let ended = ask(&mut operator, Request::Addresses(Page { goes_on: true, ..Page::default() })).unwrap_err();
    assert!(ended.message.contains("List them again"));
}
