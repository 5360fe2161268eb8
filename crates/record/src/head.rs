//! Head of a stream: reads its schema message, and checks that it is one of ours.

use std::collections::HashMap;

use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;

use crate::columns::Columns;
use crate::message::{self, Framed};
use crate::store::Source;
use crate::table::{FORMAT, Table};

/// Limit on the schema message; only its annotations vary in length.
const MAX_HEAD: u64 = 16 << 20;

/// The validated schema of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    table: Table,
    schema: SchemaRef,
    metadata: HashMap<String, String>,
    /// Indices of the columns known to this version.
    columns: Vec<usize>,
    /// Bytes of the schema message.
    pub(crate) len: u64,
}

impl Head {
    /// Reads the head of a table's stream.
    pub(crate) fn read(source: &dyn Source, table: Table) -> Result<Self, String> {
        let len = source.len(table).map_err(|e| e.to_string())?.ok_or("there is no such file")?;
        let bytes = source.read(table, 0, len.min(MAX_HEAD) as usize);
        let bytes = bytes.map_err(|e| e.to_string())?;
        let framing = match message::frame(&bytes, 0)? {
            Framed::Whole(framing) => framing,
            Framed::Incomplete => return Err(format!("it ends within its schema, at {len} bytes")),
            Framed::End => return Err("it has no schema".into()),
        };
        let schema = message::schema(&bytes, &framing)?;
        let text = |(k, v): (&String, &String)| (k.clone(), v.clone());
        let metadata = schema.metadata().iter().map(text).collect();
        check_identity(&metadata, table)?;
        let columns = known_columns(&schema, table)?;
        Ok(Self { table, schema, metadata, columns, len: framing.end() as u64 })
    }

    /// Schema metadata: the recording's description of itself.
    pub(crate) fn metadata(&self) -> &HashMap<String, String> {
        &self.metadata
    }

    /// Decodes the record batches in `bytes`, which end with a complete one.
    pub(crate) fn batches(&self, bytes: Vec<u8>) -> Result<Vec<Columns>, String> {
        let bytes = Buffer::from_vec(bytes);
        let mut room = message::most_unpacked(bytes.len());
        let (mut batches, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let Framed::Whole(framing) = message::frame(&bytes, at)? else {
                return Err(format!(
                    "the commit row ends within a message of {}",
                    self.table.name()
                ));
            };
            let (schema, columns) = (&self.schema, &self.columns);
            let batch = message::batch(&bytes, &framing, schema, columns, &mut room)?;
            batches.push(Columns(batch));
            at = framing.end();
        }
        Ok(batches)
    }

    /// Decodes the record batch at `framing` of `bytes`.
    pub(crate) fn batch(
        &self,
        bytes: &Buffer,
        framing: &message::Framing,
    ) -> Result<Columns, String> {
        let mut room = message::most_unpacked(framing.bytes());
        message::batch(bytes, framing, &self.schema, &self.columns, &mut room).map(Columns)
    }
}

fn check_identity(metadata: &HashMap<String, String>, table: Table) -> Result<(), String> {
    let format = metadata.get("tierscope.format").ok_or("it is an Arrow stream, but not ours")?;
    let format: u32 = format.parse().map_err(|_| format!("its format is `{format}`"))?;
    if format > FORMAT {
        let cause = "was written by a newer tierscope";
        return Err(format!("it {cause} (format {format}, this one reads up to {FORMAT})"));
    }
    match metadata.get("tierscope.table") {
        Some(name) if name == table.name() => Ok(()),
        name => Err(format!("it holds table `{}`", name.map_or("", String::as_str))),
    }
}

fn known_columns(schema: &SchemaRef, table: Table) -> Result<Vec<usize>, String> {
    let ours = table.schema(&HashMap::new());
    let find = |field: &arrow_schema::FieldRef| match schema.fields().find(field.name()) {
        Some((index, found)) if found.data_type() == field.data_type() => Some(Ok(index)),
        Some((_, found)) => {
            Some(Err(format!("column `{}` is of type {}", field.name(), found.data_type())))
        }
        None if table.may_lack(field.name()) => None,
        None => Some(Err(format!("it has no column `{}`", field.name()))),
    };
    ours.fields().iter().filter_map(find).collect()
}
