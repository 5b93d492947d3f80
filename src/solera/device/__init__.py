"""A device: one folder with a person's own history and a publisher's model, which recommends offline."""
