"""erasures, the names that went with them, and tombstones"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "erasures",
        sa.Column("erasure_id", sa.String(length=40), nullable=False),
        sa.Column("user_key", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("tainted", sa.JSON(), nullable=False),
        *_stamps(),
        sa.PrimaryKeyConstraint("erasure_id"),
        sa.UniqueConstraint("user_key"),
    )
    op.create_table(
        "erased_names",
        sa.Column("task", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("erasure_id", sa.String(length=40), nullable=False),
        *_stamps(),
        sa.PrimaryKeyConstraint("task", "name"),
    )
    op.create_table(
        "tombstones",
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("task", sa.String(length=64), nullable=False),
        sa.Column("successor", sa.String(length=64), nullable=True),
        sa.Column("rows_removed", sa.Integer(), nullable=False),
        sa.Column("train_rows_removed", sa.Integer(), nullable=False),
        sa.Column("erasure_id", sa.String(length=40), nullable=False),
        *_stamps(),
        sa.PrimaryKeyConstraint("kind", "digest"),
    )


def downgrade() -> None:
    op.drop_table("tombstones")
    op.drop_table("erased_names")
    op.drop_table("erasures")


def _stamps() -> list[sa.Column[str]]:
    return [
        sa.Column("environment", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.String(length=128), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
    ]
