//! Parquet without Arrow: flat columns of integers, decimals, floats, booleans, strings and moments for tables, column by
//! column; rows, with lists, for texts.

use super::{Cell, Columns, Content, FileFormat, Row, RowReader};
use crate::{
    DataError, Place,
    formats::table::{Selection, Table},
};
use ::parquet::{
    basic::{ConvertedType, LogicalType, TimeUnit, Type},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, DataType},
    errors::ParquetError,
    file::reader::{FileReader, RowGroupReader, SerializedFileReader},
    record::{Field, reader::RowIter},
    schema::types::{ColumnDescriptor, Type as Schema},
};
use plimsoll_base::guard::guarded;
use std::{
    borrow::Cow,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) struct Parquet;
pub(super) const FORMAT: Parquet = Parquet;

impl FileFormat for Parquet {
    fn open(&self, file: &Path, opened: File) -> Result<Box<dyn RowReader>, DataError> {
        Ok(Box::new(survive(file, || Rows::open(file, opened))?))
    }

    fn table(&self, file: &Path, opened: File, selection: &Selection) -> Result<Table, DataError> {
        survive(file, || read_columns(file, opened, selection))
    }

    #[cfg(test)]
    fn write(&self, names: &[&str], rows: &[Vec<Cell<'_>>]) -> Vec<u8> {
        tests::written(names, rows)
    }
}

/// The reader is not written for hostile files: a panic inside it is a broken file, not a broken program.
fn survive<T>(file: &Path, work: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
    guarded(work).unwrap_or_else(|cause| Err(DataError::Parquet { file: file.into(), cause }))
}

struct Rows {
    file: PathBuf,
    names: Vec<String>,
    /// Until columns are selected.
    reader: Option<SerializedFileReader<File>>,
    rows: Option<RowIter<'static>>,
    wanted: Vec<String>,
    /// Whether each of these counts nanoseconds, which a cell does not say.
    in_nanos: Vec<bool>,
    row: u64,
}

impl Rows {
    fn open(file: &Path, opened: File) -> Result<Self, DataError> {
        let reader = SerializedFileReader::new(opened).map_err(|error| broken(file, error))?;
        let fields = reader.metadata().file_metadata().schema().get_fields();
        let names = fields.iter().map(|field| field.name().to_string()).collect();
        Ok(Rows {
            file: file.into(),
            names,
            reader: Some(reader),
            rows: None,
            wanted: Vec::new(),
            in_nanos: Vec::new(),
            row: 0,
        })
    }
}

/// Rows of the columns `wanted` alone: others are not even decoded.
fn project(reader: SerializedFileReader<File>, wanted: &Columns) -> Result<RowIter<'static>, ParquetError> {
    let schema = reader.metadata().file_metadata().schema();
    let fields = schema.get_fields().iter().filter(|field| wanted.find(field.name(), 0).is_some());
    let projection = Schema::group_type_builder(schema.name()).with_fields(fields.map(Arc::clone).collect()).build()?;
    RowIter::from_file_into(Box::new(reader)).project(Some(projection))
}

impl RowReader for Rows {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn select(&mut self, columns: &Columns) -> Result<(), DataError> {
        self.wanted = columns.names().to_vec();
        if let Some(reader) = self.reader.take() {
            let file = &self.file;
            self.in_nanos = self.wanted.iter().map(|name| counts_nanoseconds(&reader, name)).collect();
            let rows = survive(file, || project(reader, columns).map_err(|error| broken(file, error)))?;
            self.rows = Some(rows);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Row<'_>>, DataError> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let file = &self.file;
        let record = survive(file, || rows.next().transpose().map_err(|error| broken(file, error)))?;
        let Some(record) = record else { return Ok(None) };
        self.row += 1;
        let find = |(column, in_nanos): (&String, &bool)| {
            let found = record.get_column_iter().find(|(name, _)| *name == column);
            match found {
                Some((_, Field::Long(nanoseconds))) if *in_nanos => moment(*nanoseconds, 9),
                found => found.map_or(Cell::Missing, |(_, field)| cell(field)),
            }
        };
        let cells: Vec<Cell<'static>> = self.wanted.iter().zip(&self.in_nanos).map(find).collect();
        let text = |cell: &Cell<'_>| if let Cell::Text(text) = cell { text.len() } else { 0 };
        let bytes = u32::try_from(cells.iter().map(text).sum::<usize>()).unwrap_or(u32::MAX);
        Ok(Some(Row { place: Place::Row(self.row), offset: 0, bytes, content: Content::Cells(cells) }))
    }
}

fn counts_nanoseconds(reader: &SerializedFileReader<File>, column: &str) -> bool {
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let logical = fields.iter().find(|field| field.name() == column).map(|field| field.get_basic_info());
    let logical = logical.and_then(|info| info.logical_type_ref());
    matches!(logical, Some(LogicalType::Timestamp(kind)) if kind.unit == TimeUnit::NANOS)
}

fn cell(field: &Field) -> Cell<'static> {
    match field {
        Field::Null => Cell::Missing,
        Field::Str(text) => Cell::Text(Cow::Owned(text.clone())),
        Field::Bool(flag) => Cell::Number(f64::from(*flag)),
        Field::Byte(n) => Cell::Number(f64::from(*n)),
        Field::Short(n) => Cell::Number(f64::from(*n)),
        Field::Int(n) => Cell::Number(f64::from(*n)),
        // Beyond 2^53 a float has not every digit: such numbers are names, not amounts.
        Field::Long(n) if n.unsigned_abs() >> 53 != 0 => Cell::Exact((*n).into()),
        Field::Long(n) => Cell::Number(*n as f64),
        Field::UByte(n) => Cell::Number(f64::from(*n)),
        Field::UShort(n) => Cell::Number(f64::from(*n)),
        Field::UInt(n) => Cell::Number(f64::from(*n)),
        Field::ULong(n) if n >> 53 != 0 => Cell::Exact((*n).into()),
        Field::ULong(n) => Cell::Number(*n as f64),
        Field::Float(x) => Cell::Number(f64::from(*x)),
        Field::Double(x) => Cell::Number(*x),
        Field::Bytes(bytes) => bytes.as_utf8().map_or(Cell::Other("bytes"), |text| Cell::Text(Cow::Owned(text.into()))),
        Field::Decimal(number) => carried_decimal(number.data(), number.scale()),
        Field::Date(days) => text_of(date(i64::from(*days))),
        Field::TimeMillis(time) => text_of(time_of_day(i64::from(*time), 3)),
        Field::TimeMicros(time) => text_of(time_of_day(*time, 6)),
        Field::TimestampMillis(moment_ms) => moment(*moment_ms, 3),
        Field::TimestampMicros(moment_us) => moment(*moment_us, 6),
        Field::ListInternal(list) => Cell::List(list.elements().iter().map(cell).collect()),
        _ => Cell::Other("a value of another type"),
    }
}

fn text_of(text: String) -> Cell<'static> {
    Cell::Text(Cow::Owned(text))
}

/// A moment as it is written where it stands for itself, in the order of moments: `2024-01-31T08:30:00.123`. `digits`: of the
/// fractions of a second that are counted.
fn moment(fractions: i64, digits: u32) -> Cell<'static> {
    let day = 86_400 * 10i64.pow(digits);
    text_of(format!("{}T{}", date(fractions.div_euclid(day)), time_of_day(fractions.rem_euclid(day), digits)))
}

fn time_of_day(fractions: i64, digits: u32) -> String {
    let second = 10i64.pow(digits);
    let (seconds, rest, width) = (fractions / second, fractions % second, digits as usize);
    format!("{:02}:{:02}:{:02}.{rest:0width$}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The day that is so many days after the first of 1970. Years begin in March here, so that a leap day is a year's last;
/// 400 of them have 146,097 days.
fn date(days: i64) -> String {
    let since = days + 719_468;
    let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + i64::from(month <= 2))
}

/// An integer of big-endian bytes; `None` of more than 38 digits.
fn integer(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first().is_some_and(|byte| byte >> 7 == 1) { 0xff } else { 0 };
    let mut whole = [sign; 16];
    whole[16usize.checked_sub(bytes.len())?..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(whole))
}

/// The number nearest to a decimal, as if it had been written with a point.
fn decimal(digits: i128, scale: i32) -> f64 {
    format!("{digits}e{}", -i64::from(scale)).parse().unwrap_or(f64::NAN)
}

/// A decimal that is only carried along may be a name of more digits than a float has.
fn carried_decimal(bytes: &[u8], scale: i32) -> Cell<'static> {
    match integer(bytes) {
        Some(digits) if scale == 0 && digits.unsigned_abs() >> 53 != 0 => {
            i64::try_from(digits).map_or_else(|_| text_of(digits.to_string()), |digits| Cell::Exact(digits.into()))
        }
        Some(digits) => Cell::Number(decimal(digits, scale)),
        None => Cell::Other("a decimal of more than 38 digits"),
    }
}

/// Values decoded at a time; bounds the memory beside the table itself.
const CHUNK: usize = 8192;

fn read_columns(file: &Path, opened: File, selection: &Selection) -> Result<Table, DataError> {
    let reader = SerializedFileReader::new(opened).map_err(|error| broken(file, error))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names = schema.columns().iter().map(|column| column.path().string()).collect();
    let mut table = Table::new(file, names, selection)?;
    for (index, descriptor) in schema.columns().iter().enumerate() {
        refuse_unreadable(&mut table, index, descriptor)?;
    }
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(|error| broken(file, error))?;
        read_group(&mut table, &*group)?;
    }
    if let Some((name, rows)) = table.uneven() {
        let cause = format!("column `{name}` has {rows} rows, others {}", table.rows);
        return Err(DataError::Parquet { file: file.into(), cause });
    }
    table.finish()
}

/// Types that cannot be numbers or text here: dropped where columns are guessed, an error where they are named.
fn refuse_unreadable(table: &mut Table, index: usize, descriptor: &ColumnDescriptor) -> Result<(), DataError> {
    let readable = is_readable(descriptor);
    // A moment counts nanoseconds or days: readable as the time column, never a feature by accident.
    if is_moment(descriptor) || !readable {
        table.drop_candidate(index);
    }
    if !readable && table.wants(index) {
        let (name, kind) = (table.column_name(index), descriptor.physical_type());
        let cause = format!("column `{name}` has a type that is not supported ({kind:?})");
        return Err(DataError::Parquet { file: table.file.clone(), cause });
    }
    Ok(())
}

fn is_moment(descriptor: &ColumnDescriptor) -> bool {
    use ConvertedType as C;
    let is_old = descriptor.physical_type() == Type::INT96;
    is_old
        || matches!(
            descriptor.logical_type_ref(),
            Some(LogicalType::Date | LogicalType::Time { .. } | LogicalType::Timestamp { .. })
        )
        || matches!(
            descriptor.converted_type(),
            C::DATE | C::TIME_MILLIS | C::TIME_MICROS | C::TIMESTAMP_MILLIS | C::TIMESTAMP_MICROS
        )
}

fn is_readable(descriptor: &ColumnDescriptor) -> bool {
    const MOST_DIGITS: i32 = 38;
    let is_known = match is_decimal(descriptor) {
        true => descriptor.type_precision() <= MOST_DIGITS,
        false => descriptor.physical_type() != Type::FIXED_LEN_BYTE_ARRAY,
    };
    is_known && descriptor.max_rep_level() == 0
}

fn is_decimal(descriptor: &ColumnDescriptor) -> bool {
    descriptor.converted_type() == ConvertedType::DECIMAL
        || matches!(descriptor.logical_type_ref(), Some(LogicalType::Decimal { .. }))
}

fn is_unsigned(descriptor: &ColumnDescriptor) -> bool {
    use ConvertedType as C;
    matches!(descriptor.converted_type(), C::UINT_8 | C::UINT_16 | C::UINT_32 | C::UINT_64)
}

fn read_group(table: &mut Table, group: &dyn RowGroupReader) -> Result<(), DataError> {
    let first_row = table.rows;
    let mut rows = 0;
    for index in 0..table.width() {
        let descriptor = group.metadata().schema_descr().column(index);
        let (unsigned, decimals) = (is_unsigned(&descriptor), is_decimal(&descriptor));
        let scale = if decimals { descriptor.type_scale() } else { 0 };
        if !table.wants(index) {
            continue;
        }
        let reader = group.get_column_reader(index).map_err(|error| broken(&table.file, error))?;
        let mut target = Target { table, index, row: first_row, nullable: descriptor.max_def_level() };
        match reader {
            ColumnReader::BoolColumnReader(r) => target.take(r, |v| Ok(Cell::Number(f64::from(*v)))),
            ColumnReader::Int32ColumnReader(r) if decimals => {
                target.take(r, |v| Ok(Cell::Number(decimal(i128::from(*v), scale))))
            }
            ColumnReader::Int64ColumnReader(r) if decimals => {
                target.take(r, |v| Ok(Cell::Number(decimal(i128::from(*v), scale))))
            }
            ColumnReader::ByteArrayColumnReader(r) if decimals => target.take(r, |v| of_bytes(v.data(), scale)),
            ColumnReader::FixedLenByteArrayColumnReader(r) if decimals => target.take(r, |v| of_bytes(v.data(), scale)),
            ColumnReader::Int32ColumnReader(r) if unsigned => target.take(r, |v| Ok(Cell::Number(*v as u32 as f64))),
            ColumnReader::Int32ColumnReader(r) => target.take(r, |v| Ok(Cell::Number(f64::from(*v)))),
            ColumnReader::Int64ColumnReader(r) if unsigned => target.take(r, |v| Ok(Cell::Number(*v as u64 as f64))),
            ColumnReader::Int64ColumnReader(r) => target.take(r, |v| Ok(Cell::Number(*v as f64))),
            ColumnReader::FloatColumnReader(r) => target.take(r, |v| Ok(Cell::Number(f64::from(*v)))),
            ColumnReader::DoubleColumnReader(r) => target.take(r, |v| Ok(Cell::Number(*v))),
            ColumnReader::ByteArrayColumnReader(r) => target.take(r, text),
            // Moments of older programs: milliseconds, as rows have them.
            ColumnReader::Int96ColumnReader(r) => target.take(r, |v| Ok(Cell::Number(v.to_millis() as f64))),
            ColumnReader::FixedLenByteArrayColumnReader(_) => continue,
        }?;
        rows = rows.max(target.row - first_row);
    }
    (0..rows).for_each(|_| table.end_row(None));
    Ok(())
}

fn of_bytes(bytes: &[u8], scale: i32) -> Result<Cell<'static>, String> {
    let digits = integer(bytes).ok_or("a decimal of more than 38 digits")?;
    Ok(Cell::Number(decimal(digits, scale)))
}

fn text(value: &ByteArray) -> Result<Cell<'_>, String> {
    value.as_utf8().map(|text| Cell::Text(Cow::Borrowed(text))).map_err(|_| "a text that is not UTF-8".into())
}

/// One column of one row group on its way into the table.
struct Target<'a> {
    table: &'a mut Table,
    index: usize,
    row: usize,
    /// The definition level of a present value; 0 when the column has no nulls.
    nullable: i16,
}

impl Target<'_> {
    fn take<T: DataType>(
        &mut self,
        mut reader: ColumnReaderImpl<T>,
        cell: impl Fn(&T::T) -> Result<Cell<'_>, String>,
    ) -> Result<(), DataError> {
        let (mut values, mut levels) = (Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK));
        loop {
            values.clear();
            levels.clear();
            let wanted = (self.nullable > 0).then_some(&mut levels);
            let read = reader.read_records(CHUNK, wanted, None, &mut values);
            let (records, _, _) = read.map_err(|error| broken(&self.table.file, error))?;
            if records == 0 {
                return Ok(());
            }
            let mut present = values.iter();
            for record in 0..records {
                let missing = self.nullable > 0 && levels.get(record).is_none_or(|&level| level < self.nullable);
                let value = if missing { None } else { present.next() };
                self.put(value.map(&cell).transpose())?;
            }
        }
    }

    fn put(&mut self, cell: Result<Option<Cell<'_>>, String>) -> Result<(), DataError> {
        let place = Place::Row(self.row as u64 + 1);
        let cell = cell.map_err(|cause| self.malformed(place, cause))?;
        self.table.push(self.index, place, cell.unwrap_or(Cell::Missing))?;
        self.row += 1;
        Ok(())
    }

    fn malformed(&self, place: Place, cause: String) -> DataError {
        let hint = "write that column as UTF-8 text or as numbers, or name others";
        DataError::Malformed { file: self.table.file.clone(), place, cause, hint }
    }
}

fn broken(file: &Path, error: ParquetError) -> DataError {
    DataError::Parquet { file: file.into(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::table as read_table;
    use super::*;
    use crate::formats::table::Values;
    use ::parquet::{
        basic::Compression,
        data_type::{
            BoolType, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type,
        },
        file::{properties::WriterProperties, writer::SerializedFileWriter},
        schema::parser::parse_message_type,
    };
    use std::{fs, sync::Arc};

    const SCHEMA: &str = "message m {
        required int64 time (TIMESTAMP(MILLIS,true));
        optional double price;
        required boolean holiday;
        required binary label (UTF8);
        required int96 old;
        required int64 exact (DECIMAL(10,2));
        required fixed_len_byte_array(9) money (DECIMAL(20,0));
        required int32 day (DATE);
        required int64 nano (TIMESTAMP(NANOS,true));
        required fixed_len_byte_array(2) code;
    }";

    /// Two row groups of 3 rows; `price` of row `hole` (from 0) is null.
    fn write(path: &Path, compression: Compression, hole: Option<usize>) {
        let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
        for group in 0..2usize {
            let rows = group * 3..group * 3 + 3;
            let mut columns = writer.next_row_group().unwrap();
            let times: Vec<i64> = rows.clone().map(|row| 1_700_000_000_000 + row as i64).collect();
            let mut column = columns.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&times, None, None).unwrap();
            column.close().unwrap();
            let levels: Vec<i16> = rows.clone().map(|row| i16::from(Some(row) != hole)).collect();
            let prices: Vec<f64> = rows.clone().filter(|row| Some(*row) != hole).map(|row| row as f64 + 0.25).collect();
            let mut column = columns.next_column().unwrap().unwrap();
            column.typed::<DoubleType>().write_batch(&prices, Some(&levels), None).unwrap();
            column.close().unwrap();
            let mut column = columns.next_column().unwrap().unwrap();
            column.typed::<BoolType>().write_batch(&[true, false, true], None, None).unwrap();
            column.close().unwrap();
            let mut column = columns.next_column().unwrap().unwrap();
            let words = ["up", "down", "up"].map(ByteArray::from);
            column.typed::<ByteArrayType>().write_batch(&words, None, None).unwrap();
            column.close().unwrap();
            let mut column = columns.next_column().unwrap().unwrap();
            let old = vec![Default::default(); 3];
            column.typed::<::parquet::data_type::Int96Type>().write_batch(&old, None, None).unwrap();
            column.close().unwrap();
            let mut column = columns.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&[110, -2, 3], None, None).unwrap();
            column.close().unwrap();
            let bytes = |low: u8| FixedLenByteArray::from(vec![0, 0, 32, 0, 0, 0, 0, 0, low]);
            let mut column = columns.next_column().unwrap().unwrap();
            column.typed::<FixedLenByteArrayType>().write_batch(&[1, 2, 3].map(bytes), None, None).unwrap();
            column.close().unwrap();
            let mut column = columns.next_column().unwrap().unwrap();
            column.typed::<Int32Type>().write_batch(&[-1, 19_782, 19_783], None, None).unwrap();
            column.close().unwrap();
            let mut column = columns.next_column().unwrap().unwrap();
            let nanos = times.iter().map(|ms| ms * 1_000_000 + 7).collect::<Vec<_>>();
            column.typed::<Int64Type>().write_batch(&nanos, None, None).unwrap();
            column.close().unwrap();
            let mut column = columns.next_column().unwrap().unwrap();
            let codes = [1, 2, 3].map(|low| FixedLenByteArray::from(vec![0, low]));
            column.typed::<FixedLenByteArrayType>().write_batch(&codes, None, None).unwrap();
            column.close().unwrap();
            columns.close().unwrap();
        }
        writer.close().unwrap();
    }

    /// A column holds numbers if its first value is one.
    pub(super) fn written(names: &[&str], rows: &[Vec<Cell<'_>>]) -> Vec<u8> {
        let first = |column: usize| rows.iter().map(|row| &row[column]).find(|cell| **cell != Cell::Missing);
        let numeric = |column: usize| matches!(first(column), Some(Cell::Number(_)));
        let field = |(column, name): (usize, &&str)| match numeric(column) {
            true => format!("optional double {name};"),
            false => format!("optional binary {name} (UTF8);"),
        };
        let fields: String = names.iter().enumerate().map(field).collect();
        let schema = Arc::new(parse_message_type(&format!("message m {{ {fields} }}")).unwrap());
        let mut bytes = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, Default::default()).unwrap();
        for group in rows.chunks(7) {
            let mut columns = writer.next_row_group().unwrap();
            for at in 0..names.len() {
                let cells = || group.iter().map(|row| &row[at]);
                let levels: Vec<i16> = cells().map(|cell| i16::from(*cell != Cell::Missing)).collect();
                let mut column = columns.next_column().unwrap().unwrap();
                if numeric(at) {
                    let number = |cell: &Cell<'_>| if let Cell::Number(number) = cell { Some(*number) } else { None };
                    let values: Vec<f64> = cells().filter_map(number).collect();
                    column.typed::<DoubleType>().write_batch(&values, Some(&levels), None).unwrap();
                } else {
                    let text =
                        |cell: &Cell<'_>| if let Cell::Text(text) = cell { Some(text.as_ref().into()) } else { None };
                    let values: Vec<ByteArray> = cells().filter_map(text).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
                }
                column.close().unwrap();
            }
            columns.close().unwrap();
        }
        writer.close().unwrap();
        bytes
    }

    fn selection(numbers: Option<&[&str]>, others: &[&str]) -> Selection {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        Selection { numbers: numbers.map(names), others: names(others), ..Selection::default() }
    }

    #[test]
    fn columns_are_read_over_row_groups_and_codecs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())] {
            write(&path, compression, None);
            let selection = selection(None, &["label"]);
            let table = read_table(&path, None, &selection).unwrap();
            assert_eq!(table.rows, 6);
            // Moments, of which INT96 is one, and bytes are no features by accident.
            assert_eq!(table.number_names(&selection), ["price", "holiday", "exact", "money"]);
            assert_eq!(table.numbers("exact").unwrap()[..3], [1.1, -0.02, 0.03]);
            assert_eq!(table.numbers("money").unwrap()[0], 2f64.powi(53));
            assert_eq!(table.numbers("price").unwrap(), [0.25, 1.25, 2.25, 3.25, 4.25, 5.25]);
            assert_eq!(table.numbers("holiday").unwrap(), [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]);
            let Values::Text(words) = table.column("label").unwrap() else { panic!("labels are words") };
            assert_eq!(words.iter().collect::<Vec<_>>().join(" "), "up down up up down up");
        }
        let timed = read_table(&path, None, &selection(Some(&["price"]), &["time"])).unwrap();
        assert_eq!(timed.numbers("time").unwrap()[5], 1_700_000_000_005.0);
    }

    /// What rows say of them is what people would write; a table counts.
    #[test]
    fn moments_and_decimals_are_told_by_rows_and_counted_by_tables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write(&path, Compression::SNAPPY, None);
        let columns = Columns::new(["time", "nano", "day", "exact", "money"].map(String::from));
        let mut rows = FORMAT.open(&path, File::open(&path).unwrap()).unwrap();
        rows.select(&columns).unwrap();
        let expected = [
            Cell::Text("2023-11-14T22:13:20.000".into()),
            Cell::Text("2023-11-14T22:13:20.000000007".into()),
            Cell::Text("1969-12-31".into()),
            Cell::Number(1.1),
            Cell::Exact((2i64.pow(53) + 1).into()),
        ];
        assert_eq!(rows.next().unwrap().unwrap().cells(&path, &columns).unwrap(), expected);
        let survey = crate::survey::survey(&path, None).unwrap();
        let column = |name: &str| survey.columns.iter().find(|column| column.name == name).unwrap();
        assert!(["exact", "money", "price"].into_iter().all(|name| column(name).is_numeric()), "{survey:?}");
        assert!(["time", "nano", "day"].into_iter().all(|name| column(name).is_time()), "{survey:?}");
        assert!(column("time").has_order() && column("time").backwards.is_none(), "{survey:?}");
        for time in ["time", "nano", "old"] {
            let selection = Selection { ordered: Some(time.into()), ..selection(Some(&["price"]), &[]) };
            assert_eq!(read_table(&path, None, &selection).unwrap().rows, 6, "{time}");
        }
        assert_eq!(
            [0, 59, 60, -719_468, 19_782].map(date).join(" "),
            "1970-01-01 1970-03-01 1970-03-02 0000-03-01 2024-02-29"
        );
        assert_eq!((integer(&[0xff]), integer(&[0; 17]), integer(&[])), (Some(-1), None, Some(0)));
        for (digits, text) in [(12_345_678_901_234_567_890, "123456789012345678.90"), (-5, "-0.05")] {
            assert_eq!(decimal(digits, 2), text.parse::<f64>().unwrap());
        }
    }

    #[test]
    fn nulls_and_unsupported_types_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        for (hole, row) in [(4, 5), (0, 1)] {
            write(&path, Compression::SNAPPY, Some(hole));
            let error = read_table(&path, None, &selection(None, &[])).unwrap_err();
            let expected = Place::Row(row);
            assert!(matches!(&error, DataError::MissingValue { place, .. } if *place == expected), "{error}");
        }
        let error = read_table(&path, None, &selection(Some(&["code"]), &[])).unwrap_err();
        assert!(error.to_string().contains("not supported"), "{error}");
        let error = read_table(&path, None, &selection(Some(&["prices"]), &[])).unwrap_err();
        assert_eq!(error.hint(), "did you mean `price`?");
    }

    /// Damage of every kind gives an error or a table, never a panic or a hang.
    #[test]
    fn damaged_files_do_not_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write(&path, Compression::SNAPPY, None);
        let whole = fs::read(&path).unwrap();
        for cut in [0, 3, 11, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            assert!(
                matches!(read_table(&path, None, &selection(None, &[])), Err(DataError::Parquet { .. })),
                "cut {cut}"
            );
        }
        for seed in 0..2000u64 {
            let mut bytes = whole.clone();
            let place = plimsoll_base::random::mix(seed + 1) as usize % bytes.len();
            bytes[place] ^= 1 << (seed % 8);
            fs::write(&path, &bytes).unwrap();
            if let Ok(table) = read_table(&path, None, &selection(None, &["label"])) {
                assert!(table.rows <= 6);
            }
        }
    }
}
