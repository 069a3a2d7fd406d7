use falaj_inference::Labels;
use proptest::prelude::*;

use super::*;

fn info(name: &str, data_type: DataType, shape: Option<&[i64]>) -> ValueInfo {
    let shape = shape.map(<[i64]>::to_vec);
    ValueInfo { name: name.to_owned(), data_type, shape, labels: None::<Labels> }
}

fn one(name: &str, data: Data) -> (Field, Column) {
    (Field::one(name, Item::Element(data.data_type())), Column::of(data))
}

fn made(columns: Vec<(Field, Column)>, inputs: &[ValueInfo]) -> Result<Vec<(String, Tensor)>> {
    let fields: Vec<_> = columns.iter().map(|(field, _)| field.clone()).collect();
    Plan::new(&fields, inputs, &[])?.inputs(&Batch::new(columns)?)
}

fn said(result: Result<Vec<(String, Tensor)>>) -> String {
    result.unwrap_err().message().to_owned()
}

#[test]
fn a_column_is_the_input_of_its_name() {
    for (shape, wanted) in
        [(None, vec![2]), (Some(&[-1_i64][..]), vec![2]), (Some(&[-1, 1]), vec![2, 1])]
    {
        let columns = vec![one("id", Data::I64(vec![7, 8])), one("x", Data::F64(vec![0.5, 1.5]))];
        let inputs = made(columns, &[info("x", DataType::F32, shape)]).unwrap();
        assert_eq!(inputs, [("x".to_owned(), Tensor::of(wanted, vec![0.5_f32, 1.5]).unwrap())]);
    }
}

#[test]
fn many_columns_are_gathered_into_one_input() {
    let columns = || {
        vec![
            one("age", Data::I64(vec![30, 40])),
            one("rate", Data::F64(vec![0.25, 0.5])),
            (Field::one("name", Item::Text), Column::texts(["a", "b"])),
            one("flag", Data::Bool(vec![true, false])),
        ]
    };
    let input = [info("features", DataType::F32, Some(&[-1, 3]))];
    let found = made(columns(), &input).unwrap();
    let wanted = vec![30.0_f32, 0.25, 1.0, 40.0, 0.5, 0.0];
    assert_eq!(found[0].1, Tensor::of([2, 3], wanted).unwrap());

    let fields: Vec<_> = columns().into_iter().map(|(field, _)| field).collect();
    let chosen = ["rate".to_owned(), "age".to_owned()];
    let two = [info("features", DataType::F64, Some(&[-1, 2]))];
    let plan = Plan::new(&fields, &two, &chosen).unwrap();
    assert_eq!(plan.columns(), chosen);
    let found = plan.inputs(&Batch::new(columns()).unwrap()).unwrap();
    assert_eq!(found[0].1, Tensor::of([2, 2], vec![0.25, 30.0, 0.5, 40.0]).unwrap());

    let four = [info("features", DataType::F32, Some(&[-1, 4]))];
    assert_eq!(
        said(made(columns(), &four)),
        "`input features` is \"3 columns (age, rate, flag)\"; allowed: 4 columns; name those that are meant"
    );
    let half = [info("features", DataType::F16, Some(&[-1, 3]))];
    let found = made(columns(), &half).unwrap();
    assert_eq!(found[0].1.data_type(), DataType::F16);
}

#[test]
fn lists_take_the_shape_of_the_input() {
    let lists = |ends: Vec<usize>| {
        let items = Data::F32((0..12_u8).map(f32::from).collect());
        let field = Field::one("x", Item::Element(DataType::F32)).many(Many::Varied);
        vec![(field, Column::lists(items, ends))]
    };
    for (shape, wanted) in [
        (None, vec![2, 6]),
        (Some(&[-1_i64, 6][..]), vec![2, 6]),
        (Some(&[-1, -1]), vec![2, 6]),
        (Some(&[-1, 2, 3]), vec![2, 2, 3]),
        (Some(&[-1, 2, -1]), vec![2, 2, 3]),
    ] {
        let found = made(lists(vec![6, 12]), &[info("x", DataType::F32, shape)]).unwrap();
        assert_eq!(found[0].1.shape(), wanted);
    }
    let wide = [info("x", DataType::F32, Some(&[-1, 5]))];
    assert_eq!(
        said(made(lists(vec![6, 12]), &wide)),
        "`column x` is \"6 values in a row\"; allowed: rows of [5]"
    );
    assert_eq!(
        said(made(lists(vec![6, 11, 12]), &[info("x", DataType::F32, None)])),
        "`column x` is \"5 values in row 1 of the batch\"; allowed: 6, like the first row; or one row at once"
    );
}

#[test]
fn what_does_not_fit_is_refused_and_not_bent() {
    let whole = info("x", DataType::I32, Some(&[-1]));
    for (data, fits) in [
        (Data::F64(vec![1.0, -2.0]), true),
        (Data::F64(vec![1.0, 2.5]), false),
        (Data::F64(vec![1.0, f64::NAN]), false),
        (Data::I64(vec![1, 1 << 40]), false),
        (Data::U64(vec![1, u64::MAX]), false),
        (Data::Bool(vec![true, false]), true),
        (Data::Bytes(vec!["1".into(), "2".into()]), false),
    ] {
        let shown = format!("{data:?}");
        assert_eq!(
            made(vec![one("x", data)], std::slice::from_ref(&whole)).is_ok(),
            fits,
            "{shown}"
        );
    }
    let text = (Field::one("x", Item::Text), Column::texts(["a"]));
    assert!(made(vec![text.clone()], &[info("x", DataType::F32, None)]).is_err());
    assert!(made(vec![text], &[info("x", DataType::Bytes, None)]).is_ok());
    let time = (Field::one("x", Item::Time), Column::of(Data::I64(vec![5])));
    assert!(made(vec![time], &[info("x", DataType::I64, None)]).is_err());
}

#[test]
fn a_hole_is_nan_among_floats_and_refused_elsewhere() {
    let column = |data: Data| {
        let field = Field::one("x", Item::Element(data.data_type())).optional();
        vec![(field, Column { missing: Some(vec![false, true]), ..Column::of(data) })]
    };
    let float = [info("x", DataType::F32, Some(&[-1]))];
    let found = made(column(Data::I64(vec![3, 0])), &float).unwrap();
    let found = found[0].1.get::<f32>().unwrap();
    assert!((found[0] - 3.0).abs() < f32::EPSILON && found[1].is_nan());
    let whole = [info("x", DataType::I64, Some(&[-1]))];
    assert_eq!(
        said(made(column(Data::I64(vec![3, 0])), &whole)),
        "`column x` is \"nothing in row 1 of the batch\"; allowed: a value in every row, for INT64"
    );
}

#[test]
fn an_input_that_nothing_fits_is_named() {
    let columns = || vec![one("a", Data::F32(vec![1.0]))];
    let inputs =
        [info("x", DataType::F32, Some(&[-1, 1])), info("y", DataType::F32, Some(&[-1, 1]))];
    let found = said(made(columns(), &inputs));
    assert_eq!(found, "`input x` is \"nothing\"; allowed: a column of its own among a");
    let cube = [info("x", DataType::F32, Some(&[-1, 2, 2]))];
    assert!(said(made(columns(), &cube)).contains("a column of its name"));
    assert_eq!(Plan::new(&[], &[], &[]).unwrap().fixed_rows(), None);
    let fixed = Plan::new(
        &[Field::one("x", Item::Text)],
        &[info("x", DataType::Bytes, Some(&[1, 1]))],
        &[],
    );
    assert_eq!(fixed.unwrap().fixed_rows(), Some(1));
}

#[test]
fn outputs_become_columns() {
    let outputs = vec![
        ("label".to_owned(), Tensor::strings([2], ["yes", "no"]).unwrap()),
        ("score".to_owned(), Tensor::of([2, 1], vec![0.5_f32, 0.25]).unwrap()),
        ("all".to_owned(), Tensor::of([2, 2], vec![1_i64, 2, 3, 4]).unwrap()),
        ("any".to_owned(), Tensor::of([2, 2], vec![1_u8, 2, 3, 4]).unwrap()),
        ("half".to_owned(), Tensor::new(vec![2], Data::Bf16(vec![0x3f80, 0xc000])).unwrap()),
    ];
    let infos = [
        info("all", DataType::I64, Some(&[-1, 2])),
        info("any", DataType::U8, Some(&[-1, -1])),
        info("score", DataType::F32, Some(&[-1, 1])),
    ];
    let batch = columns_of(outputs, &infos).unwrap();
    let kinds: Vec<_> =
        batch.columns().iter().map(|(field, _)| (&*field.name, field.many.clone())).collect();
    assert_eq!(
        kinds[1..4],
        [("score", Many::One), ("all", Many::Fixed(vec![2])), ("any", Many::Varied)]
    );
    assert_eq!(batch.column("half").unwrap().1.items, Data::F32(vec![1.0, -2.0]));
    let scalar = vec![("x".to_owned(), Tensor::of([], vec![1.0_f32]).unwrap())];
    assert!(columns_of(scalar, &[]).is_err());
}

proptest! {
    #[test]
    fn numbers_survive_a_wider_type(all in prop::collection::vec(any::<i32>(), 1..20)) {
        let column = vec![one("x", Data::I32(all.clone()))];
        for kind in [DataType::I64, DataType::F64, DataType::I32] {
            let found = made(column.clone(), &[info("x", kind, None)]).unwrap();
            let back = vec![one("x", found[0].1.data().clone())];
            let back = made(back, &[info("x", DataType::I32, None)]).unwrap();
            prop_assert_eq!(back[0].1.get::<i32>().unwrap(), &all);
        }
    }
}
