//! Access to the columns of a batch by name and type.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, UInt8Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, PrimitiveArray, RecordBatch,
    new_null_array,
};
use arrow_array::{StringArray, UInt8Array, UInt32Array, UInt64Array};
use arrow_schema::{DataType, FieldRef, SchemaRef};

use crate::table::Table;

/// Columns by name; an error names the missing or mistyped column.
pub(crate) struct Columns(pub(crate) RecordBatch);

impl Columns {
    pub(crate) fn rows(&self) -> usize {
        self.0.num_rows()
    }

    /// A batch with the columns of `schema` (that of `table`) in its order. Columns that older
    /// recordings lack are filled in: full confidence, no rates, nothing unknown.
    pub(crate) fn select(&self, schema: &SchemaRef, table: Table) -> Result<RecordBatch, String> {
        let column = |field: &FieldRef| {
            let name = field.name();
            let missing = || table.may_lack(name).then(|| self.default_of(field));
            let found = self.0.column_by_name(name).cloned().or_else(missing);
            found.ok_or_else(|| format!("no column `{name}`"))
        };
        let columns = schema.fields().iter().map(column).collect::<Result<_, _>>()?;
        RecordBatch::try_new(schema.clone(), columns).map_err(|e| e.to_string())
    }

    fn default_of(&self, field: &FieldRef) -> ArrayRef {
        let rows = self.rows();
        match field.data_type() {
            // Bins of older tiles are powers of two, and say which.
            DataType::UInt64 if field.name() == "bytes" => {
                let size = |shift: u8| 1u64.checked_shl(shift.into()).unwrap_or(0);
                let shifts = self.u8("shift").ok();
                let shift = |row| shifts.map_or(64, |shifts| shifts.value(row));
                Arc::new(UInt64Array::from_iter_values((0..rows).map(|row| size(shift(row)))))
            }
            DataType::UInt8 => {
                let whole = if field.name() == "confidence" { u8::MAX } else { 0 };
                Arc::new(UInt8Array::from(vec![whole; rows]))
            }
            DataType::Boolean => Arc::new(BooleanArray::from(vec![false; rows])),
            other => new_null_array(other, rows),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.column_by_name(name).is_some()
    }

    fn get(&self, name: &str) -> Result<&dyn Array, String> {
        let column = self.0.column_by_name(name).ok_or_else(|| format!("no column `{name}`"))?;
        Ok(column.as_ref())
    }

    fn primitive<T: ArrowPrimitiveType>(&self, name: &str) -> Result<&PrimitiveArray<T>, String> {
        self.get(name)?.as_primitive_opt().ok_or_else(|| wrong_type(name))
    }

    pub(crate) fn u8(&self, name: &str) -> Result<&UInt8Array, String> {
        self.primitive::<UInt8Type>(name)
    }

    pub(crate) fn u32(&self, name: &str) -> Result<&UInt32Array, String> {
        self.primitive::<UInt32Type>(name)
    }

    pub(crate) fn u64(&self, name: &str) -> Result<&UInt64Array, String> {
        self.primitive::<UInt64Type>(name)
    }

    pub(crate) fn f32(&self, name: &str) -> Result<&Float32Array, String> {
        self.primitive::<Float32Type>(name)
    }

    pub(crate) fn f64(&self, name: &str) -> Result<&Float64Array, String> {
        self.primitive::<Float64Type>(name)
    }

    pub(crate) fn text(&self, name: &str) -> Result<&StringArray, String> {
        self.get(name)?.as_string_opt().ok_or_else(|| wrong_type(name))
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<&BooleanArray, String> {
        self.get(name)?.as_boolean_opt().ok_or_else(|| wrong_type(name))
    }
}

fn wrong_type(name: &str) -> String {
    format!("column `{name}` has another type than it should")
}

/// The value of a nullable column.
pub(crate) fn optional<T: ArrowPrimitiveType>(
    column: &PrimitiveArray<T>,
    row: usize,
) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{Field, Schema};
    use std::collections::HashMap;

    // Tiles of older recordings: without confidence and unknown shares, and with log2 of the bytes.
    #[test]
    fn columns_missing_in_older_recordings_have_defaults() {
        let schema = Table::Tiles.schema(&HashMap::new());
        let (space, start) = (tierscope_core::SpaceId(0), 0);
        let bin =
            crate::Bin { space, start, bytes: 4096, heat: 9, seen: 200, sure: 255, unknown: 0 };
        let tile = crate::tiles::Tile { bins: vec![bin], ..Default::default() };
        let mut batch = crate::encode::tile(schema.clone(), &tile).unwrap();
        for missing in ["unknown_share", "confidence"] {
            let last = batch.num_columns() - 1;
            assert_eq!(batch.schema().field(last).name(), missing);
            batch.remove_column(last);
        }
        let schema_of_new = batch.schema();
        let sizes = schema_of_new.index_of("bytes").unwrap();
        let mut fields: Vec<FieldRef> = schema_of_new.fields().iter().cloned().collect();
        fields[sizes] = Arc::new(Field::new("shift", DataType::UInt8, false));
        let mut arrays = batch.columns().to_vec();
        arrays[sizes] = Arc::new(UInt8Array::from(vec![12]));
        let old = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
        let old = Columns(old);
        assert_eq!(crate::decode::bins(&old).unwrap(), [bin]);
        let whole = Columns(old.select(&schema, Table::Tiles).unwrap());
        assert_eq!(whole.0.schema(), schema);
        assert_eq!(crate::decode::bins(&whole).unwrap(), [bin]);
        assert!(old.select(&Table::Regions.schema(&HashMap::new()), Table::Regions).is_err());
    }

    // Regions of an older recording: no rates, nothing unknown.
    #[test]
    fn older_regions_have_no_rates() {
        let schema = Table::Regions.schema(&HashMap::new());
        let rates = ["rate_low", "rate_mean", "rate_high", "unknown", "unknown_reason", "resident"];
        let of_old = |name: &str| !rates.contains(&name);
        let fields: Vec<_> =
            schema.fields().iter().filter(|field| of_old(field.name())).cloned().collect();
        let columns = fields.iter().map(|field| one(field.data_type()));
        let old_schema = Arc::new(arrow_schema::Schema::new(fields.clone()));
        let old = Columns(RecordBatch::try_new(old_schema, columns.collect()).unwrap());
        let region = crate::decode::regions(&old).unwrap()[0];
        assert_eq!((region.rate, region.unknown), (None, None));
        let whole = Columns(old.select(&schema, Table::Regions).unwrap());
        assert_eq!(crate::decode::regions(&whole).unwrap()[0], region);
    }

    /// A column of a single 1.
    fn one(kind: &DataType) -> ArrayRef {
        match kind {
            DataType::UInt8 => Arc::new(UInt8Array::from(vec![1])),
            DataType::UInt32 => Arc::new(UInt32Array::from(vec![1])),
            DataType::Float32 => Arc::new(Float32Array::from(vec![1.0])),
            _ => Arc::new(UInt64Array::from(vec![1])),
        }
    }
}
